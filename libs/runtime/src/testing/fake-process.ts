import { assertNever } from '@cloudless/base';
import type { Behaviour, BehaviourStep } from '../conformance/behaviour.js';
import type { LogStream, TerminalSize } from '../container-runtime.js';
import { FakeStdin } from './fake-stdin.js';

/** The surroundings of a fake process: its inputs, and the callbacks of the fake machine. */
export interface FakeProcessHost {
  readonly env: Readonly<Record<string, string>>;
  /** The whole standard input. Ignored when `input` is given. */
  readonly stdin: Uint8Array;
  /** Streamed standard input, instead of `stdin`. */
  readonly input?: FakeStdin;
  /** Returns the current size of the terminal; undefined without a terminal. */
  readonly terminal?: () => TerminalSize | undefined;
  write(stream: LogStream, bytes: Uint8Array): void;
  /** Returns true when the gate is open. Otherwise calls `action` once, when the gate opens. */
  waitForGate(gate: string, action: () => void): boolean;
  onChildStarted(name: string): void;
  onChildEnded(name: string): void;
  /** Called once, when the process exits. */
  onExit(exitCode: number, signal?: string): void;
}

const encoder = new TextEncoder();

/**
 * Simulates a process without a clock and without an operating-system process: runs the steps of a
 * behaviour until a step has to wait for a gate, for input or for a signal.
 */
export class FakeProcess {
  private stepIndex = 0;
  private exited = false;
  private onTerm: { readonly line: string; readonly exitCode: number } | 'ignore' | 'die' = 'die';
  private readonly children: string[] = [];
  private readonly input: FakeStdin;

  constructor(
    private readonly behaviour: Behaviour,
    private readonly host: FakeProcessHost,
  ) {
    this.input = host.input ?? new FakeStdin();
    if (host.input !== undefined) return;
    this.input.push(host.stdin);
    this.input.end();
  }

  /**
   * Runs steps until a step has to wait or the process exits. The event that a step waits for calls
   * this method again.
   */
  run(): void {
    while (!this.exited) {
      const step = this.behaviour[this.stepIndex];
      if (step === undefined) return this.end(0);
      if (!this.runStep(step)) return;
      this.stepIndex += 1;
    }
  }

  get hasExited(): boolean {
    return this.exited;
  }

  /** Simulates SIGTERM. */
  terminate(): void {
    if (this.exited) return;
    if (this.onTerm === 'ignore') return;
    if (this.onTerm === 'die') return this.end(143, 'SIGTERM');
    this.host.write('stdout', encoder.encode(`${this.onTerm.line}\n`));
    this.end(this.onTerm.exitCode);
  }

  /** Simulates SIGKILL. */
  kill(): void {
    this.end(137, 'SIGKILL');
  }

  /**
   * Makes the process exit and ends its children.
   * @param exitCode - 128 plus the number of the signal when a signal ended the process.
   */
  end(exitCode: number, signal?: string): void {
    if (this.exited) return;
    this.exited = true;
    for (const child of this.children) this.host.onChildEnded(child);
    this.host.onExit(exitCode, signal);
  }

  private waitForInput(): false {
    this.input.onMore(() => this.run());
    return false;
  }

  /**
   * Runs one step.
   * @returns False when the step has to wait, or the process has exited.
   */
  private runStep(step: BehaviourStep): boolean {
    const { host } = this;
    switch (step.step) {
      case 'write':
        host.write(step.stream, encoder.encode(step.text));
        return true;
      case 'writeBytes':
        host.write(step.stream, Uint8Array.from(step.bytes));
        return true;
      case 'fill':
        host.write(step.stream, encoder.encode(step.letter.repeat(step.count)));
        return true;
      case 'number':
        for (let number = step.from; number <= step.to; number += 1)
          host.write(step.stream, encoder.encode(`line ${number}\n`));
        return true;
      case 'writeEnv':
        host.write('stdout', encoder.encode(`${host.env[step.name] ?? 'unset'}\n`));
        return true;
      case 'copyStdin':
        host.write('stdout', this.input.readAll());
        return this.input.ended || this.waitForInput();
      case 'readLine':
        return this.input.readLine() || this.waitForInput();
      case 'writeSize': {
        const size = host.terminal?.();
        host.write(
          'stdout',
          encoder.encode(size === undefined ? 'no terminal\n' : `${size.rows} ${size.columns}\n`),
        );
        return true;
      }
      case 'ignoreTerm':
        this.onTerm = 'ignore';
        return true;
      case 'onTerm':
        this.onTerm = step;
        return true;
      case 'child':
        this.children.push(step.name);
        host.onChildStarted(step.name);
        return true;
      case 'gate':
        return host.waitForGate(step.name, () => this.run());
      case 'hold':
        return false;
      case 'exit':
        this.end(step.code);
        return false;
      case 'die':
        this.kill();
        return false;
      default:
        return assertNever(step);
    }
  }
}
