//! Measures how long drawing many ranks takes: `cargo run --release -p xpu-tests --example draw_time`. It
//! measures CPU time, which other programs on the machine hardly change.

use std::time::Duration;

use ratatui::{buffer::Buffer, layout::Rect};
use xpu_simulation::Simulation;
use xpu_tests::{Lab, core_time::on_core};
use xpu_tui::view;

fn main() {
    println!("ranks   terminal  fold 1 s of frames   settle, all new   settle, nothing new   draw");
    for (hosts, ranks_per_host) in [(8, 8), (128, 8), (1_250, 8)] {
        let mut lab = Lab::new(Simulation::new(1, hosts, ranks_per_host));
        for (width, height) in [(80, 24), (132, 40), (200, 60)] {
            measure(&mut lab, hosts * ranks_per_host, width, height);
        }
    }
}

fn measure(lab: &mut Lab, ranks: u32, width: u16, height: u16) {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let (mut fold, mut anew, mut again, mut draw) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..10 {
        fold.push(lab.timed_second());
        anew.push(timed(|| lab.app().settle()));
        again.push(timed(|| lab.app().settle()));
        draw.push(timed(|| {
            buffer.reset();
            view::draw(lab.app(), buffer.area, &mut buffer);
        }));
    }
    let [fold, anew, again, draw] = [fold, anew, again, draw].map(middle);
    println!(
        "{ranks:>6}  {width:>4}x{height:<4} {fold:>15.2} ms {anew:>14.2} ms {again:>18.3} ms {draw:>8.2} ms",
    );
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = on_core();
    work();
    on_core().saturating_sub(began)
}

fn middle(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}
