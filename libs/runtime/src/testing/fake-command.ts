import type { Behaviour } from '../conformance/behaviour.js';

/** Executable that the fake interprets itself; its one argument is the behaviour as JSON. */
const BEHAVE = 'behave';

/**
 * A command that makes a fake container, or a command run in it, behave so. Any other command stays
 * until it is ended.
 */
export function behaviourCommand(behaviour: Behaviour): readonly string[] {
  return [BEHAVE, JSON.stringify(behaviour)];
}

/** The behaviour that a command asks for. */
export function behaviourOf(command: readonly string[]): Behaviour {
  const [executable, text] = command;
  if (executable !== BEHAVE || text === undefined) return [{ step: 'hold' }];
  return JSON.parse(text) as Behaviour; // written by behaviourCommand
}
