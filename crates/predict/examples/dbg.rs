use presagio_predict::{apps,Model,PredictedFile};
fn main(){
  let which=std::env::args().nth(1).unwrap();
  let from:usize=std::env::args().nth(2).unwrap().parse().unwrap();
  let max:usize=std::env::args().nth(3).unwrap().parse().unwrap();
  let (_,ev)=apps::all().into_iter().find(|a|a.0==which).unwrap();
  let mut m=Model::new(); let mut shown=0; let mut loss=0.0; let mut gaploss=0.0; let mut end=0u64;
  for (i,e) in ev.iter().enumerate(){
    let next=m.next_symbols(); let preds:Vec<_>=m.predictions().map(|(mut c,s)|(c.peek_symbol(),c.next().unwrap(),s)).collect();
    let gap=e.time.0.saturating_sub(end); end=e.time.0+e.duration.0;
    m.observe(e);
    let sym=m.last_symbol().unwrap();
    let w:f64=next.iter().filter(|n|n.0==sym).map(|n|n.1).sum();
    let off:f64=preds.iter().filter(|p|p.1.offset==e.offset && (match p.1.file{PredictedFile::Known(f)=>f==e.file,_=>true})).map(|p|p.2).sum();
    let ge:f64=preds.iter().map(|p|p.2*(p.1.after.0 as f64-gap as f64).abs()).sum();
    if i>=from { loss+=1.0-w; gaploss+=ge; if (w<0.999|| off<0.999 || ge>1e6) && shown<max {shown+=1; println!("{i} {} ctx {} off {} len {} sym {sym} w {w:.4} off {off:.3} gap {gap} err {ge:.0} | {:?}",e.action,e.context.0,e.offset,e.len,preds.iter().take(4).map(|p|(p.0,p.1.action.name(),p.1.offset,p.1.len,p.1.after.0,(p.2*1000.).round()/1000.)).collect::<Vec<_>>());}}
  }
  println!("loss {loss} gaploss {}s of {}",gaploss/1e9,ev.len());
}
