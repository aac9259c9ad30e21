import { join } from 'node:path';
import { findBundle, killAll, listProcessesMentioning, type Machine } from '@cloudless/e2e';
import { MachineProgram } from './machine-program.js';

/** An agent on its own machine; its replicas are processes on the same machine. */
export class AgentMachine extends MachineProgram {
  /**
   * @param zone - Zone of the node; a different zone holds from the next start.
   * @param flags - Further flags of the agent.
   */
  constructor(
    machine: Machine,
    public zone: string,
    private readonly coordinatorUrls: readonly string[],
    private readonly joinTokenFile: string,
    private readonly flags: readonly string[] = [],
  ) {
    super(machine);
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
    this.run(`exec ${[...program, ...flags].join(' ')}`);
  }

  /** Kills the supervisor of the replicas. */
  killSupervisor(): void {
    killAll(listProcessesMentioning(`supervisor ${join(this.machine.home, 'agent')}`));
  }
}
