import type { LogStream } from '../container-runtime.js';

/**
 * One step of a test container or command. Each harness converts a list of steps into a command of
 * its runtime.
 */
export type BehaviourStep =
  /** Writes the text without adding a line end. */
  | { readonly step: 'write'; readonly stream: LogStream; readonly text: string }
  /** Writes raw bytes. */
  | { readonly step: 'writeBytes'; readonly stream: LogStream; readonly bytes: readonly number[] }
  /** Writes one ASCII letter `count` times, without line end. */
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
  /** Copies stdin to stdout until stdin ends. */
  | { readonly step: 'copyStdin' }
  /** Reads one line of stdin, or up to its end. */
  | { readonly step: 'readLine' }
  /** Writes the size of its terminal as a line `<rows> <columns>`, or `no terminal`. */
  | { readonly step: 'writeSize' }
  /** Ignores SIGTERM and SIGHUP from here on. */
  | { readonly step: 'ignoreTerm' }
  /** From here on, on SIGTERM writes the line to stdout and exits with the code. */
  | { readonly step: 'onTerm'; readonly line: string; readonly exitCode: number }
  /** Waits until the test opens the gate of that name (letters and digits). */
  | { readonly step: 'gate'; readonly name: string }
  /**
   * Starts a child process that runs until killed; tests refer to it by name (letters and digits).
   */
  | { readonly step: 'child'; readonly name: string }
  /** Runs until killed. */
  | { readonly step: 'hold' }
  /** Exits. After the last step, a container exits with 0. */
  | { readonly step: 'exit'; readonly code: number }
  /** Sends SIGKILL to itself. */
  | { readonly step: 'die' };

/** Steps of a container or command, in order. */
export type Behaviour = readonly BehaviourStep[];
