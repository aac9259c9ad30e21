import type { Behaviour } from '../conformance/behaviour.js';

/** Name of the executable whose only argument is a behaviour as JSON. */
const BEHAVE = 'behave';

/**
 * Converts a behaviour to a command of a fake container. Any other command runs until it is
 * stopped.
 */
export function toBehaviourCommand(behaviour: Behaviour): readonly string[] {
  return [BEHAVE, JSON.stringify(behaviour)];
}

/** Returns the behaviour of a command; `hold` unless {@link toBehaviourCommand} created it. */
export function parseBehaviour(command: readonly string[]): Behaviour {
  const [executable, text] = command;
  if (executable !== BEHAVE || text === undefined) return [{ step: 'hold' }];
  return JSON.parse(text) as Behaviour; // written by toBehaviourCommand
}
