//  libzmq's compile-time settings, in place of its config.hpp. Only the first differs from libzmq 4.3.4. This
//  file is included before each file of libzmq, and also before its C files if one compiler takes C and C++
//  alike (zig).
#ifdef __cplusplus

#define __ZMQ_CONFIG_HPP_INCLUDED__

namespace zmq
{
enum
{
    //  Messages a queue grows by, 64 bytes each. A viewer has five such pieces for each host. With libzmq's
    //  256, they take 82 KB, which is 100 MB for 1,250 hosts that send once a second.
    message_pipe_granularity = 16,

    command_pipe_granularity = 16,
    inbound_poll_rate = 100,
    max_wm_delta = 1024,
    max_io_events = 256,
    proxy_burst_size = 1000,
    max_command_delay = 3000000,
    clock_precision = 1000000,
    signaler_port = 0
};
}

#endif
