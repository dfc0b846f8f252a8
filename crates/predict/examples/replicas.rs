//! Prints what docs/prediction.md says of the replicas of the paper's programs.

use presagio_predict::apps;
use presagio_predict::score::{Options, Score};

fn main() {
    println!(
        "program        ops    context offset contig. hits   off by    at once   to end  grammar exact plain next-off ahead-off"
    );
    for (name, events) in apps::all() {
        let mut score = Score::new(Options {
            operations: Some(events.len() as u64),
            compare: true,
            ..Options::default()
        });
        events.iter().for_each(|event| score.observe(event));
        println!("{}", line(name, &score));
    }
}

fn line(name: &str, score: &Score) -> String {
    let tally = score.tally();
    let percent = |share: f64| format!("{:.2}", 100.0 * share);
    let (grammar, others) = score.grammars();
    let (exact, plain) = others.unwrap_or_default();
    let perfect = score.reach().perfect_from();
    format!(
        "{name:<14} {:<6} {:<7} {:<6} {:<7} {:<6} {:<9} {:<9} {:<7} {grammar:<7} {exact:<5} {plain:<5} {:<8.3} {:.3}",
        tally.operations,
        percent(tally.contexts()),
        percent(tally.offsets()),
        percent(tally.contiguous_share()),
        percent(tally.hit_ratio()),
        tally.gap_error().to_string(),
        tally.gap_mean().to_string(),
        perfect.map_or("-".to_owned(), |n| n.to_string()),
        tally.next.error(),
        tally.ahead.error(),
    )
}
