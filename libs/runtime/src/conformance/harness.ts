import type { ContainerRuntime } from '../container-runtime.js';
import type { Behaviour } from './behaviour.js';

/** One machine of a test: a runtime with nothing on it, and what the test needs to steer it. */
export interface RuntimeMachine {
  /** The runtime that is open now. */
  readonly runtime: ContainerRuntime;
  /** What every container runs, on runtimes that need an image. */
  readonly image?: string;
  /** A command that behaves so; for `ContainerRequest.command` and `ExecRequest.command`. */
  command(behaviour: Behaviour): readonly string[];
  /** Opens a gate that a behaviour waits at, now or later. */
  openGate(name: string): Promise<void>;
  /**
   * Resolves when the child that a behaviour started under this name has ended; it must have been
   * started.
   */
  childEnded(name: string): Promise<void>;
  /** Resolves when the child of this name has been started. */
  childStarted(name: string): Promise<void>;
  /**
   * Lets the caller of the runtime end and start again: closes `runtime` and opens another, which
   * is `runtime` from then on.
   */
  reopen(): Promise<ContainerRuntime>;
  /** Moves virtual time on; returns at once where time passes by itself. */
  elapse(durationMs: number): Promise<void>;
  /** Ends everything that was started, and closes. */
  dispose(): Promise<void>;
}

/** How the suite gets at an implementation. */
export interface RuntimeHarness {
  /** A fresh machine. The suite disposes of it. */
  open(): Promise<RuntimeMachine>;
  /** A command whose executable does not exist. */
  readonly unknownCommand: readonly string[];
  /** A command whose executable exists and cannot be executed. */
  readonly unexecutableCommand: readonly string[];
  /** Lines of `number` that make the logs rotate at least once and still are all kept. */
  readonly rotatingLines: number;
}

/** The machine of the test that runs now. */
export type CurrentMachine = () => RuntimeMachine;
