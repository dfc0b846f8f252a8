use presagio_predict::{apps,score::*,Settings};
fn main(){
  for (n,ev) in apps::all(){ for mode in [presagio_grammar::Mode::Folding,presagio_grammar::Mode::Exact]{
  let mut s=Score::new(Options{operations:Some(ev.len() as u64),settings:Settings{mode,..Settings::default()},..Options::default()});
  let t=std::time::Instant::now(); for e in &ev{s.observe(e);}
  let r=s.reach(); let t1=s.tally();
  println!("{n} {mode:?}: perfect from {:?} of {} median {} share {:.3} ctx {:.2} off {:.2} hit {:.2} gap {} grammar {} cal {:.3} {:.3} took {:?}",r.perfect_from(),r.operations,r.median(),r.share(),100.*t1.contexts(),100.*t1.offsets(),100.*t1.hit_ratio(),t1.gap_error(),s.grammars().0,t1.next.error(),t1.ahead.error(),t.elapsed());
  }}
}
