//! A step from a module's unwinding tables: `.eh_frame_hdr` to find the function, `.eh_frame` for its rules.
//!
//! `gimli` decodes them. The rules are carried out here, for the handful of registers that can matter, since that
//! takes a tenth of the stack that a full table row does, and we may be running on very little.

use crate::modules::Tables;
use crate::steps::{End, RBP, REGISTERS, Saved};
use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CommonInformationEntry, EhFrame,
    EhFrameHdr, EhFrameOffset, EndianSlice, Expression, FrameDescriptionEntry, LittleEndian,
    Operation, Register, UnwindExpression, UnwindSection,
};

type Bytes = EndianSlice<'static, LittleEndian>;
type Function = FrameDescriptionEntry<Bytes>;

const ADDRESS_SIZE: u8 = 8;

// Numbers of registers in the tables (System V ABI for AMD64, figure 3.36).
const STACK_POINTER: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);

/// States that a function may save at one time; compilers save one.
const SAVED_STATES: usize = 4;

/// Where the frame that `pc` returns into ends, and where the caller's registers are. `None`: no tables say it, or
/// they say that there is no caller.
pub(crate) fn rules(tables: &Tables, pc: u64) -> Option<(End, [Saved; REGISTERS])> {
    // A call may be the last instruction of its function: the address before is certainly in it.
    let address = pc.wrapping_sub(1);
    let (section, bases, function) = find(tables, address)?;
    // What a signal interrupted says nothing about its handler.
    if function.is_signal_trampoline() {
        return None;
    }
    let mut program = Program {
        section,
        cie: function.cie(),
        row: Row::EMPTY,
        initial: Row::EMPTY,
    };
    program.run(function.cie().instructions(&section, &bases), None)?;
    program.initial = program.row;
    let stop = Some((function.initial_address(), address));
    program.run(function.instructions(&section, &bases), stop)?;
    program.row.rules()
}

/// The entry of the function that holds this address.
fn find(tables: &Tables, address: u64) -> Option<(EhFrame<Bytes>, BaseAddresses, Function)> {
    let header = tables.header();
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.as_ptr() as u64);
    let parsed = EhFrameHdr::new(header, LittleEndian)
        .parse(&bases, ADDRESS_SIZE)
        .ok()?;
    let start = parsed.eh_frame_ptr().direct().ok()?;
    let section = EhFrame::new(tables.from(start)?, LittleEndian);
    let bases = bases.set_eh_frame(start);
    let entry = parsed
        .table()?
        .lookup(address, &bases)
        .ok()?
        .direct()
        .ok()?;
    let offset = EhFrameOffset(usize::try_from(entry.checked_sub(start)?).ok()?);
    let function = section
        .fde_from_offset(&bases, offset, EhFrame::cie_from_offset)
        .ok()?;
    function
        .contains(address)
        .then_some((section, bases, function))
}

/// Where the frame's end is, as the tables say it.
#[derive(Clone, Copy)]
enum Cfa {
    Unknown,
    Register(Register, i64),
    InWordAt(Register, i64),
}

/// The rules at one place of a function.
#[derive(Clone, Copy)]
struct Row {
    cfa: Cfa,
    saved: [Saved; REGISTERS],
    /// Whether the return address lies just below the frame's end, where x86-64's `call` puts it.
    returns: bool,
}

impl Row {
    const EMPTY: Row = Row {
        cfa: Cfa::Unknown,
        saved: [Saved::Kept; REGISTERS],
        returns: false,
    };

    fn rules(&self) -> Option<(End, [Saved; REGISTERS])> {
        if !self.returns {
            return None;
        }
        let end = match self.cfa {
            Cfa::Unknown => return None,
            Cfa::Register(STACK_POINTER, distance) => End::AboveStack(distance.try_into().ok()?),
            Cfa::Register(register, distance) => {
                End::FromRegister(number(register)?, distance.try_into().ok()?)
            }
            Cfa::InWordAt(register, distance) => {
                End::InWordAt(number(register)?, distance.try_into().ok()?)
            }
        };
        Some((end, self.saved))
    }
}

/// The rules of a function being carried out.
struct Program<'a> {
    section: EhFrame<Bytes>,
    cie: &'a CommonInformationEntry<Bytes>,
    row: Row,
    /// What all functions of the entry's kind start with.
    initial: Row,
}

impl Program<'_> {
    /// Carries out instructions; with `stop`, from the first address up to the one after.
    fn run(
        &mut self,
        mut instructions: CallFrameInstructionIter<'_, Bytes>,
        stop: Option<(u64, u64)>,
    ) -> Option<()> {
        let (mut location, last) = stop.unwrap_or((0, u64::MAX));
        let mut states = [Row::EMPTY; SAVED_STATES];
        let mut depth = 0;
        while let Some(instruction) = instructions.next().ok()? {
            match instruction {
                CallFrameInstruction::SetLoc { address } => location = address,
                CallFrameInstruction::AdvanceLoc { delta } => {
                    let bytes = u64::from(delta).wrapping_mul(self.cie.code_alignment_factor());
                    location = location.wrapping_add(bytes);
                }
                CallFrameInstruction::RememberState => {
                    *states.get_mut(depth)? = self.row;
                    depth += 1;
                }
                CallFrameInstruction::RestoreState => {
                    depth = depth.checked_sub(1)?;
                    self.row = states[depth];
                }
                other => self.apply(other)?,
            }
            if location > last {
                break;
            }
        }
        Some(())
    }

    fn apply(&mut self, instruction: CallFrameInstruction<usize>) -> Option<()> {
        use CallFrameInstruction as I;
        let factor = self.cie.data_alignment_factor();
        let scaled = |factored: i64| factored.wrapping_mul(factor);
        match instruction {
            I::DefCfa { register, offset } => self.row.cfa = Cfa::Register(register, offset as i64),
            I::DefCfaSf {
                register,
                factored_offset,
            } => self.row.cfa = Cfa::Register(register, scaled(factored_offset)),
            I::DefCfaRegister { register } => {
                self.row.cfa = Cfa::Register(register, self.distance()?)
            }
            I::DefCfaOffset { offset } => self.row.cfa = Cfa::Register(self.base()?, offset as i64),
            I::DefCfaOffsetSf { factored_offset } => {
                self.row.cfa = Cfa::Register(self.base()?, scaled(factored_offset))
            }
            I::DefCfaExpression { expression } => self.row.cfa = self.cfa_of(expression),
            I::Offset {
                register,
                factored_offset,
            } => self.save_at(register, scaled(factored_offset as i64)),
            I::OffsetExtendedSf {
                register,
                factored_offset,
            } => self.save_at(register, scaled(factored_offset)),
            I::Expression {
                register,
                expression,
            } => self.save(register, self.saved_by(expression)),
            I::SameValue { register } => self.save(register, Saved::Kept),
            I::Restore { register } => self.restore(register),
            I::Undefined { register }
            | I::ValOffset { register, .. }
            | I::ValOffsetSf { register, .. }
            | I::ValExpression { register, .. } => {
                self.save(register, Saved::Lost);
            }
            I::Register { dest_register, .. } => self.save(dest_register, Saved::Lost),
            I::ArgsSize { .. } | I::Nop => {}
            // Other machines' instructions.
            _ => return None,
        }
        Some(())
    }

    fn base(&self) -> Option<Register> {
        match self.row.cfa {
            Cfa::Register(register, _) => Some(register),
            _ => None,
        }
    }

    fn distance(&self) -> Option<i64> {
        match self.row.cfa {
            Cfa::Register(_, distance) => Some(distance),
            _ => None,
        }
    }

    fn save_at(&mut self, register: Register, distance: i64) {
        if register == RETURN_ADDRESS {
            self.row.returns = distance == -8;
        } else {
            self.save(
                register,
                in_words(distance).map_or(Saved::Lost, Saved::FromEnd),
            );
        }
    }

    fn save(&mut self, register: Register, saved: Saved) {
        if register == RETURN_ADDRESS {
            self.row.returns = false;
        } else if let Some(number) = number(register) {
            self.row.saved[number] = saved;
        }
    }

    fn restore(&mut self, register: Register) {
        if register == RETURN_ADDRESS {
            self.row.returns = self.initial.returns;
        } else if let Some(number) = number(register) {
            self.row.saved[number] = self.initial.saved[number];
        }
    }

    /// The one expression that compilers write for a frame's end: the word at a distance from a register.
    fn cfa_of(&self, expression: UnwindExpression<usize>) -> Cfa {
        match self.register_and_distance(expression) {
            Some((register, distance, true)) => Cfa::InWordAt(register, distance),
            Some((register, distance, false)) => Cfa::Register(register, distance),
            None => Cfa::Unknown,
        }
    }

    /// The one expression that compilers write for a saved register: at a distance from rbp.
    fn saved_by(&self, expression: UnwindExpression<usize>) -> Saved {
        match self.register_and_distance(expression) {
            Some((register, distance, false)) if number(register) == Some(RBP) => {
                in_words(distance).map_or(Saved::Lost, Saved::FromRbp)
            }
            _ => Saved::Lost,
        }
    }

    /// Register and distance, and whether what counts is the word there. `None` for any other expression.
    fn register_and_distance(
        &self,
        expression: UnwindExpression<usize>,
    ) -> Option<(Register, i64, bool)> {
        let Expression(bytes) = expression.get(&self.section).ok()?;
        let mut operations = Expression(bytes).operations(self.cie.encoding());
        let Operation::RegisterOffset {
            register, offset, ..
        } = operations.next().ok()??
        else {
            return None;
        };
        match operations.next().ok()? {
            None => Some((register, offset, false)),
            Some(Operation::Deref {
                size: ADDRESS_SIZE,
                space: false,
                ..
            }) if operations.next().ok()?.is_none() => Some((register, offset, true)),
            Some(_) => None,
        }
    }
}

/// Our number of a register that calls preserve.
fn number(register: Register) -> Option<usize> {
    match register.0 {
        6 => Some(RBP),
        3 => Some(1),
        12..=15 => Some(usize::from(register.0) - 10),
        _ => None,
    }
}

fn in_words(distance: i64) -> Option<i16> {
    if distance % 8 == 0 {
        i16::try_from(distance / 8).ok()
    } else {
        None
    }
}
