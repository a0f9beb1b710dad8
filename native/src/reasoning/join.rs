//! Finding the facts that satisfy a rule's body.

use std::ops::ControlFlow;

use super::facts::{Facts, Pattern};
use super::rules::{Atom, Slot};
use super::terms::Triple;

/// What the variables of a rule stand for, as far as that is known.
pub type Binding = Vec<Option<u32>>;

/// Makes an atom equal to a triple; the variables that it bound are added to `bound`. False leaves some bound.
pub fn unify(atom: &Atom, triple: Triple, binding: &mut Binding, bound: &mut Vec<u8>) -> bool {
    atom.iter().zip(triple).all(|(slot, term)| match *slot {
        Slot::Term(own) => own == term,
        Slot::Variable(variable) => match binding[variable as usize] {
            Some(known) => known == term,
            None => {
                binding[variable as usize] = Some(term);
                bound.push(variable);
                true
            }
        },
    })
}

/// Forgets what `unify` bound.
pub fn release(binding: &mut Binding, bound: &[u8]) {
    for &variable in bound {
        binding[variable as usize] = None;
    }
}

/// The pattern that an atom is under a binding.
pub fn pattern(atom: &Atom, binding: &Binding) -> Pattern {
    atom.map(|slot| match slot {
        Slot::Term(term) => Some(term),
        Slot::Variable(variable) => binding[variable as usize],
    })
}

/// Calls `found` with each binding under which all the atoms are facts, until it says Break.
pub fn join(
    facts: &Facts,
    atoms: &mut Vec<Atom>,
    binding: &mut Binding,
    found: &mut dyn FnMut(&Binding) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some(next) = most_telling(facts, atoms, binding) else {
        return found(binding);
    };
    let atom = atoms.swap_remove(next);
    let mut triples = Vec::new();
    let _ = facts.visit(pattern(&atom, binding), &mut |triple| {
        triples.push(triple);
        ControlFlow::Continue(())
    });
    let mut outcome = ControlFlow::Continue(());
    for triple in triples {
        let mut bound = Vec::new();
        if unify(&atom, triple, binding, &mut bound) {
            outcome = join(facts, atoms, binding, found);
        }
        release(binding, &bound);
        if outcome.is_break() {
            break;
        }
    }
    // Back where it was: the caller's order of atoms must not change under its feet.
    atoms.push(atom);
    let last = atoms.len() - 1;
    atoms.swap(next, last);
    outcome
}

/// The atom to look at next: one that no fact can fit; else the one with most terms known, where a known subject says
/// more than a known object.
fn most_telling(facts: &Facts, atoms: &[Atom], binding: &Binding) -> Option<usize> {
    let weight = |atom: &Atom| match pattern(atom, binding) {
        [_, Some(p), _] if facts.with_predicate(p) == 0 => usize::MAX,
        [s, p, o] => 4 * usize::from(s.is_some()) + 2 * usize::from(p.is_some()) + 3 * usize::from(o.is_some()),
    };
    (0..atoms.len()).max_by_key(|&i| weight(&atoms[i]))
}
