use super::engine::Engine;

const PREFIX: &str = "<http://www.w3.org/2000/01/rdf-schema#";
const TYPE: &str = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>";

fn engine(base: &str) -> Engine {
    let mut engine = Engine::new(true, "", 1_000_000).expect("the rules are rules");
    let triples = engine.terms_mut().parse(base).expect("triples");
    engine.load(triples).expect("an end");
    engine
}

fn has(engine: &mut Engine, line: &str) -> bool {
    let triple = engine.terms_mut().parse(line).expect("a triple")[0];
    engine.facts().contains(triple)
}

#[test]
fn a_removed_reason_takes_its_conclusions_along_unless_there_is_another() {
    let base = format!("<C> {PREFIX}subClassOf> <D> .\n<p> {PREFIX}domain> <D> .\n<x> {TYPE} <C> .\n<x> <p> <y> .\n");
    let mut engine = engine(&base);
    let conclusion = format!("<x> {TYPE} <D> .");
    assert!(has(&mut engine, &conclusion));
    let first = engine
        .terms_mut()
        .parse(&format!("<x> {TYPE} <C> ."))
        .expect("a triple");
    let delta = engine.apply(&[], &first).expect("an end").expect("no list");
    assert_eq!(delta.removed, first);
    assert!(has(&mut engine, &conclusion));
    let second = engine.terms_mut().parse("<x> <p> <y> .").expect("a triple");
    engine.apply(&[], &second).expect("an end").expect("no list");
    assert!(!has(&mut engine, &conclusion));
}

#[test]
fn a_chain_is_a_rule() {
    let owl = "<http://www.w3.org/2002/07/owl#propertyChainAxiom>";
    let rdf = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#";
    let base = format!(
        "<in> {owl} _:a .\n_:a {rdf}first> <of> .\n_:a {rdf}rest> _:b .\n_:b {rdf}first> <at> .\n\
         _:b {rdf}rest> {rdf}nil> .\n<s> <of> <v> .\n"
    );
    let mut engine = engine(&base);
    let added = engine.terms_mut().parse("<v> <at> <r> .").expect("a triple");
    engine.apply(&added, &[]).expect("an end").expect("no list");
    assert!(has(&mut engine, "<s> <in> <r> ."));
    let list = engine
        .terms_mut()
        .parse(&format!("_:a {rdf}first> <of> ."))
        .expect("a triple");
    assert_eq!(engine.apply(&[], &list), Ok(None));
}
