use clap::CommandFactory as _;

use super::*;

/// The commands that take an option, and whether the screen does.
fn takers(option: &str) -> (Vec<String>, bool) {
    let takes = |command: &clap::Command| command.get_opts().any(|known| known.get_long() == Some(option));
    let screen = CommandLine::command();
    let names = screen.get_subcommands().filter(|command| takes(command));
    (names.map(|command| command.get_name().to_owned()).collect(), takes(&screen))
}

#[test]
fn only_commands_that_use_the_settings_or_a_price_take_them() {
    let (config, price) = (takers("config"), takers("gpu-hour-price"));
    assert_eq!(config.0, ["run", "status", "findings", "what-if", "demo", "config"]);
    assert_eq!(price.0, ["status", "findings", "what-if", "demo"]);
    assert!(config.1 && price.1);
    let (job, _) = takers("job");
    assert!(["doctor", "qualify"].iter().all(|ignores| !job.iter().any(|name| name == ignores)), "{job:?}");
}

#[test]
fn an_option_that_would_be_ignored_is_refused() {
    let parsed = |line: &str| CommandLine::try_parse_from(["xpu-top"].into_iter().chain(line.split(' ')));
    for line in [
        "record -o f --gpu-hour-price 2",
        "capture --steps 1 -o f --config g",
        "config --print --config f",
        "doctor --job j",
        "qualify --job j",
        "qualify --compare f --base-port 9",
        "qualify --compare f --program p",
        "--replay f --ssh",
        "--replay f --key-file k",
        "status --replay f --slurm-job 1",
        "status --replay f --now",
        "findings f --base-port 9",
        "stacks --replay f --native",
        "stacks --replay f --wait 9",
        "collectives --replay f --wait 9",
        "ras --replay f --wait 9",
        "what-if f --gpu-hour-price 2",
        "what-if f --job j",
        "serve f --base-port 9",
        "export f --csv d --traces t",
        "demo --headless --theme dark",
        "demo --json --gpu-hour-price 2",
    ] {
        assert!(parsed(line).is_err(), "{line}");
    }
    for line in [
        "--replay f --job j --config g --gpu-hour-price 2 --ascii",
        "run --config f -- true",
        "status --replay f --job j --gpu-hour-price 2 --rank 1",
        "findings f --job j --config g",
        "what-if --live --gpu-hour-price 2",
        "collectives --replay f",
        "ras --replay f --at 50%",
        "serve f --job j --key-file k --port 9",
        "export f --chrome c --traces t",
        "export f --perfetto p --chrome c --traces t",
        "demo --gpu-hour-price 2 --theme dark",
        "doctor --hosts a --ssh",
        "qualify --hosts a --ssh --base-port 9",
        "qualify --compare f g",
    ] {
        assert!(parsed(line).is_ok(), "{line}: {:?}", parsed(line).err());
    }
}

/// `serve` becomes another program, and `keygen` has no outcome of its own.
#[test]
fn commands_list_their_exit_codes() {
    let screen = CommandLine::command();
    for command in
        screen.get_subcommands().filter(|command| !["serve", "keygen"].contains(&command.get_name()))
    {
        let text = command.get_long_about().unwrap_or_default().to_string();
        assert!(text.contains("Exit codes: "), "{}: {text}", command.get_name());
    }
    assert!(screen.get_after_help().unwrap_or_default().to_string().contains("64: "));
}
