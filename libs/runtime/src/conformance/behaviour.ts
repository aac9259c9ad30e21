import type { LogStream } from '../container-runtime.js';

/**
 * One thing that a test's container or command does. Each harness turns a list of them into a
 * command of its runtime.
 */
export type BehaviourStep =
  /** Writes the text as it is: no line end is added. */
  | { readonly step: 'write'; readonly stream: LogStream; readonly text: string }
  /** Writes raw bytes. */
  | { readonly step: 'writeBytes'; readonly stream: LogStream; readonly bytes: readonly number[] }
  /** Writes `count` times the one ASCII letter, without line end. */
  | {
      readonly step: 'fill';
      readonly stream: LogStream;
      readonly letter: string;
      readonly count: number;
    }
  /** Writes the lines `line <from>` to `line <to>`, both included. */
  | {
      readonly step: 'number';
      readonly stream: LogStream;
      readonly from: number;
      readonly to: number;
    }
  /** Writes the value of a variable, or `unset`, as a line to stdout. */
  | { readonly step: 'writeEnv'; readonly name: string }
  /** Copies its input to stdout until the input ends. */
  | { readonly step: 'copyStdin' }
  /** Reads one line of its input, or to its end. */
  | { readonly step: 'readLine' }
  /** Writes the size of its terminal as a line `<rows> <columns>`, or `no terminal`. */
  | { readonly step: 'writeSize' }
  /** From here on SIGTERM and SIGHUP do nothing. */
  | { readonly step: 'ignoreTerm' }
  /** From here on SIGTERM writes the line to stdout and ends with the code. */
  | { readonly step: 'onTerm'; readonly line: string; readonly exitCode: number }
  /** Waits until the test opens the gate of that name (letters and digits). */
  | { readonly step: 'gate'; readonly name: string }
  /**
   * Starts a child process that stays until killed; the test asks for it by the name (letters and
   * digits).
   */
  | { readonly step: 'child'; readonly name: string }
  /** Stays until killed. */
  | { readonly step: 'hold' }
  /** Ends. A behaviour that runs out of steps ends with 0. */
  | { readonly step: 'exit'; readonly code: number }
  /** Ends itself by SIGKILL. */
  | { readonly step: 'die' };

/** What a container or command does, in order. */
export type Behaviour = readonly BehaviourStep[];
