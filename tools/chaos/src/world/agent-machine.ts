import { join } from 'node:path';
import {
  findBundle,
  killAll,
  listProcessesMentioning,
  type Machine,
  type RunningProgram,
} from '@cloudless/e2e';

/** An agent on its own machine; its replicas are processes on the same machine. */
export class AgentMachine {
  private newest: RunningProgram | undefined;

  /**
   * @param zone - Zone of the node; a different zone holds from the next start.
   * @param flags - Further flags of the agent.
   */
  constructor(
    readonly machine: Machine,
    public zone: string,
    private readonly coordinatorUrls: readonly string[],
    private readonly joinTokenFile: string,
    private readonly flags: readonly string[] = [],
  ) {}

  get name(): string {
    return this.machine.name;
  }

  get isRunning(): boolean {
    return this.newest?.hasEnded === false;
  }

  /** Output of the newest process. */
  get lines(): readonly string[] {
    return this.newest?.lines ?? [];
  }

  /** The newest process. */
  get program(): RunningProgram {
    if (this.newest === undefined) throw new Error(`${this.name} was never started`);
    return this.newest;
  }

  /** Starts the agent; does not wait for its node. */
  start(): void {
    const flags = [
      ...['--name', this.name, '--zone', this.zone, '--region', 'local'],
      ...['--coordinator', this.coordinatorUrls.join(',')],
      ...['--join-token-file', this.joinTokenFile, '--listen', '127.0.0.1:0'],
      ...['--data-dir', join(this.machine.home, 'agent'), '--log-format', 'json'],
      ...['--runtime', 'process', ...this.flags],
    ];
    const program = [process.execPath, '--enable-source-maps', findBundle('agent'), 'run'];
    this.newest = this.machine.start(`exec ${[...program, ...flags].join(' ')}`);
  }

  /** Kills the supervisor of the replicas. */
  killSupervisor(): void {
    killAll(listProcessesMentioning(`supervisor ${join(this.machine.home, 'agent')}`));
  }

  /** Sends a signal. Resolves at the end of the process; at once for SIGSTOP and SIGCONT. */
  async kill(signal: NodeJS.Signals): Promise<void> {
    if (!this.isRunning) return;
    if (signal === 'SIGSTOP' || signal === 'SIGCONT') process.kill(this.program.pid, signal);
    else await this.program.kill(signal);
  }
}
