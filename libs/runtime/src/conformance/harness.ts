import type { ContainerRuntime } from '../container-runtime.js';
import type { Behaviour } from './behaviour.js';

/** A test machine with a runtime that has no containers. */
export interface RuntimeMachine {
  /** The current runtime instance. */
  readonly runtime: ContainerRuntime;
  /** Image of every container, for runtimes that need one. */
  readonly image?: string;
  /**
   * Converts a behaviour to a command, for `ContainerRequest.command` and `ExecRequest.command`.
   */
  command(behaviour: Behaviour): readonly string[];
  /** Opens a gate, before or after a behaviour reaches it. */
  openGate(name: string): Promise<void>;
  /** Resolves when the named child process has ended. Call it only after the child has started. */
  waitForChildEnd(name: string): Promise<void>;
  /** Resolves when the named child process has been started. */
  waitForChildStart(name: string): Promise<void>;
  /**
   * Simulates a restart of the caller: closes `runtime` and opens another instance, which replaces
   * it.
   */
  reopen(): Promise<ContainerRuntime>;
  /** Advances virtual time; returns at once with a real clock. */
  advanceTime(durationMs: number): Promise<void>;
  /**
   * Removes everything that a test has started, so that the next test finds an empty machine. A
   * machine without this method is replaced by a new one for each test, which costs the start of a
   * supervisor or of a connection.
   */
  reset?(): Promise<void>;
  /** Ends everything that was started and closes the runtime. */
  dispose(): Promise<void>;
}

/** Opens an implementation for the suite. */
export interface RuntimeHarness {
  /** Creates a machine. The suite disposes of it. */
  open(): Promise<RuntimeMachine>;
  /** A command whose executable does not exist. */
  readonly unknownCommand: readonly string[];
  /** A command whose executable exists and cannot be executed. */
  readonly unexecutableCommand: readonly string[];
  /** Number of `number` lines that cause at least one log rotation and are still all kept. */
  readonly rotatingLines: number;
}

/** Returns the machine of the current test. */
export type CurrentMachine = () => RuntimeMachine;
