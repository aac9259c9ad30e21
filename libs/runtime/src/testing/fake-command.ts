import type { Behaviour } from '../conformance/behaviour.js';

/** Executable name that the fake interprets; its only argument is the behaviour as JSON. */
const BEHAVE = 'behave';

/**
 * Converts a behaviour to a command of a fake container. Any other command runs until it is
 * stopped.
 */
export function toBehaviourCommand(behaviour: Behaviour): readonly string[] {
  return [BEHAVE, JSON.stringify(behaviour)];
}

/** Behaviour of a command. */
export function parseBehaviour(command: readonly string[]): Behaviour {
  const [executable, text] = command;
  if (executable !== BEHAVE || text === undefined) return [{ step: 'hold' }];
  return JSON.parse(text) as Behaviour; // written by behaviourCommand
}
