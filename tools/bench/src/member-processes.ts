import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { definedFields } from '@cloudless/base';
import type { AgentsCommand, AgentsReport } from './member-protocol.js';
import { readCpuSeconds } from './process-figures.js';

/**
 * The processes of the agents. On real machines, the start of one agent does not delay the pings of
 * others; here the processes take turns on the cores, and only the agents of one process share an
 * event loop.
 */
export class AgentProcesses {
  private readonly processes: readonly ChildProcess[];

  /** @param perProcess - Agents of one process. */
  constructor(
    private readonly agentCount: number,
    private readonly perProcess = 500,
  ) {
    this.processes = Array.from({ length: Math.ceil(agentCount / perProcess) }, () =>
      fork(fileURLToPath(new URL('member-agents.ts', import.meta.url)), {
        execArgv: ['--import', 'tsx', '--conditions=@cloudless/source'],
      }),
    );
  }

  get count(): number {
    return this.processes.length;
  }

  /**
   * Starts the agents of one process after the other, and resolves when all are started.
   * @param options - `joinToken`: the agents join with this token. `paced`: a few agents after the
   *   other, each group once the earlier one has sessions; so is every join with a token.
   */
  async start(
    coordinator: string,
    { joinToken, paced = false }: { readonly joinToken?: string; readonly paced?: boolean },
  ): Promise<void> {
    for (const [index, child] of this.processes.entries()) {
      const first = index * this.perProcess;
      const count = Math.min(this.perProcess, this.agentCount - first);
      const options = { paced, ...definedFields({ joinToken }) };
      await sendCommand(child, { kind: 'start', coordinator, first, count, ...options }, 'started');
    }
  }

  /** Lets the agents with these indexes fail, and returns the time of the failure, wall clock. */
  async fail(indexes: readonly number[], failure: 'reset' | 'silence'): Promise<number> {
    const reports = await Promise.all(
      this.processes.map((child, number) => {
        const failing = indexes.filter((index) => Math.floor(index / this.perProcess) === number);
        return sendCommand(child, { kind: 'fail', agents: failing, failure }, 'failed');
      }),
    );
    return Math.min(...reports.map(({ atMs }) => atMs));
  }

  /** Returns the number of agents with a session. */
  async countConnected(): Promise<number> {
    const reports = await this.sendCount();
    return reports.reduce((sum, { connected }) => sum + connected, 0);
  }

  /** Returns the memory of all processes in bytes. */
  async readMemoryBytes(): Promise<number> {
    const reports = await this.sendCount();
    return reports.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0);
  }

  /** Returns the CPU seconds of all processes. */
  readCpuSeconds(): number {
    return this.processes.reduce((sum, { pid = 0 }) => sum + readCpuSeconds(pid), 0);
  }

  kill(): void {
    for (const child of this.processes) child.kill('SIGKILL');
  }

  private sendCount() {
    return Promise.all(
      this.processes.map((child) => sendCommand(child, { kind: 'count' }, 'counted')),
    );
  }
}

/**
 * Sends a command and waits for the reply.
 * @param _kind - The kind of the reply; it only gives the type.
 */
async function sendCommand<Kind extends AgentsReport['kind']>(
  agents: ChildProcess,
  command: AgentsCommand,
  _kind: Kind,
): Promise<Extract<AgentsReport, { kind: Kind }>> {
  const reply = once(agents, 'message');
  agents.send(command);
  const [report] = (await reply) as [Extract<AgentsReport, { kind: Kind }>];
  return report;
}
