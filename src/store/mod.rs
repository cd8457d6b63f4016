//! Which tables a call works on, and that they are what they must be.
//!
//! A store is one set of journal tables. Its tables are known by OID (a rename changes nothing), found
//! through the table `stores` beside the called function, and checked once a session and after every
//! change to them. Holds for every call that goes on from here: the caller may use the store's schema,
//! and the facts are those of the tables as they are locked now.

mod access;
mod check;
mod direct;
mod planned;
mod statements;
mod tables;
mod version;

pub use tables::{Entry, From, Step, Tables};

use crate::args::{display, optional_id};
use crate::error::Error;
use crate::pg::call::Call;
use crate::pg::datum::Text;
use crate::pg::rel::{Rel, Use};
use crate::pg::scan::View;
use crate::pg::spi::{Outcome, Param, Plan};
use crate::pg::user::ActAs;
use crate::pg::{catalog, inval};
use crate::statement::{Names, Statement};
use pgrx::pg_sys::Oid;
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

/// The version of the tables that this library works with.
pub const SCHEMA_VERSION: i32 = 1;

/// A store's tables and what is known of them. Made by `check` only.
pub struct Store {
    name: Vec<u8>,
    /// Of the schema that bide's functions are in: another one after DROP and CREATE EXTENSION.
    bide: Oid,
    generation: u64,
    schema: Oid,
    owner: Oid,
    steps: Oid,
    leases: Oid,
    /// None: the tables are not plain, all goes through planned statements.
    layout: Option<direct::Layout>,
    names: Names,
    plans: RefCell<Vec<(Statement, Rc<Plan>)>>,
}

thread_local! {
    static CHECKED: RefCell<Vec<Rc<Store>>> = const { RefCell::new(Vec::new()) };
}

impl Store {
    /// The store of that name, checked.
    fn find(call: Call, name: Option<Text<'_>>) -> Result<Rc<Self>, Error> {
        let name = optional_id("store", name.map(|name| name.0))?;
        let generation = inval::generation();
        let known = CHECKED.with_borrow(|checked| {
            checked
                .iter()
                .find(|store| store.bide == call.namespace() && store.name == name)
                .filter(|store| store.generation == generation)
                .cloned()
        });
        let store = match known {
            Some(store) => store,
            None => Self::check_anew(call, name)?,
        };
        if !catalog::may_use_schema(store.schema) {
            return Err(Error::NoUsage {
                store: display(name),
                schema: store.names.schema.clone(),
            });
        }
        Ok(store)
    }

    fn check_anew(call: Call, name: &[u8]) -> Result<Rc<Self>, Error> {
        CHECKED.with_borrow_mut(|checked| {
            checked.retain(|store| store.bide == call.namespace() && store.name != name);
            if checked.is_empty() {
                inval::unwatch_all();
            }
        });
        let store = Rc::new(check::read(call.namespace(), name)?);
        CHECKED.with_borrow_mut(|checked| checked.push(store.clone()));
        Ok(store)
    }

    fn is_current(&self) -> bool {
        self.generation == inval::generation()
    }

    fn missing(&self, what: &'static str) -> Error {
        Error::TableMissing { store: display(&self.name), what }
    }

    fn execute(&self, statement: Statement, params: &[Param<'_>], view: View) -> Outcome {
        // Before the plan: it is made with the owner's rights too.
        let _owner = ActAs::role(self.owner);
        self.plan(statement).execute(params, statement.mode(view))
    }

    fn plan(&self, statement: Statement) -> Rc<Plan> {
        // Looked up and let go of before anything runs: a trigger may call us again.
        let known =
            self.plans.borrow().iter().find(|(of, _)| *of == statement).map(|(_, p)| p.clone());
        known.unwrap_or_else(|| {
            let plan = Rc::new(Plan::prepare(&statement.text(&self.names), statement.parameters()));
            self.plans.borrow_mut().push((statement, plan.clone()));
            plan
        })
    }
}

/// A store whose steps table is locked as a statement of that kind locks it, and known to be as checked.
pub struct Open {
    store: Rc<Store>,
    steps: Rel,
    leases: OnceCell<Rel>,
}

impl Open {
    /// Checks the right to the store and its tables; takes no run lock.
    pub fn new(call: Call, name: Option<Text<'_>>, how: Use) -> Result<Self, Error> {
        loop {
            let store = Store::find(call, name)?;
            // Waiting for the table lock lets changes come in; once it is held, none can.
            let steps = Rel::open(store.steps, how);
            if store.is_current() {
                let steps = steps.ok_or_else(|| store.missing("table steps"))?;
                return Ok(Self { store, steps, leases: OnceCell::new() });
            }
            pgrx::check_for_interrupts!();
        }
    }

    /// Names the run's lock, with the run id.
    pub fn steps_oid(&self) -> Oid {
        self.store.steps
    }

    /// The tables as the journal works on them.
    pub fn tables(&self, view: View) -> Box<dyn Tables + '_> {
        match &self.store.layout {
            Some(layout) => Box::new(direct::Direct::new(layout, self, view)),
            None => Box::new(planned::Planned::new(&self.store, view)),
        }
    }

    /// Runs one of our statements as the owner of the tables.
    pub fn execute(&self, statement: Statement, params: &[Param<'_>], view: View) -> Outcome {
        self.store.execute(statement, params, view)
    }

    fn leases(&self) -> Result<&Rel, Error> {
        if let Some(leases) = self.leases.get() {
            return Ok(leases);
        }
        let leases = Rel::open(self.store.leases, Use::Read)
            .ok_or_else(|| self.store.missing("table leases"))?;
        Ok(self.leases.get_or_init(|| leases))
    }
}
