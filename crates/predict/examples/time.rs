use presagio_predict::{apps,score::*,Model};
use std::time::Instant;
fn main(){
  for (n,ev) in apps::all(){
    let t=Instant::now(); let mut m=Model::new(); for e in &ev{m.observe(e);} let ob=t.elapsed();
    let t=Instant::now(); let mut m=Model::new(); let mut x=0; for e in &ev{m.observe(e); x+=m.best().map_or(0,|c|c.take(16).count());} let ah=t.elapsed();
    let t=Instant::now(); let mut s=Score::new(Options{operations:Some(ev.len() as u64),..Options::default()}); for e in &ev{s.observe(e);} let sc=t.elapsed();
    let t=Instant::now(); let mut s=Score::new(Options{operations:Some(ev.len() as u64),trials:1,..Options::default()}); for e in &ev{s.observe(e);} let sc1=t.elapsed();
    let k=ev.len() as f64; println!("{n}: observe {:.0} ns, +16 {:.0} ns, score {:.0} ns, without trials {:.0} ns x{x} mem {}",ob.as_nanos() as f64/k,ah.as_nanos() as f64/k,sc.as_nanos() as f64/k,sc1.as_nanos() as f64/k, m.memory());
  }
}
