import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { AgentCounts, AgentsCommand, AgentsReply } from './agents-protocol.js';

/** The process of the light agents. */
export class LightAgents {
  private readonly process: ChildProcess;
  private newest: Promise<unknown> = Promise.resolve();

  constructor() {
    this.process = fork(fileURLToPath(new URL('agents.ts', import.meta.url)), {
      execArgv: ['--import', 'tsx', '--conditions=@cloudless/source'],
    });
  }

  /** Starts the agents and waits until the coordinator has admitted all. */
  async start(options: Omit<Extract<AgentsCommand, { kind: 'start' }>, 'kind'>): Promise<void> {
    await this.send({ kind: 'start', ...options });
  }

  /** Breaks the connections of all agents of a zone for ever. */
  async loseZone(zone: number): Promise<void> {
    await this.send({ kind: 'loseZone', zone });
  }

  async count(): Promise<AgentCounts> {
    const reply = await this.send({ kind: 'count' });
    if (reply.kind !== 'counted') throw new Error(`unexpected reply ${reply.kind}`);
    return reply.counts;
  }

  stop(): void {
    this.process.kill('SIGKILL');
  }

  /** Sends a command after the reply to the one before, and waits for its reply. */
  private send(command: AgentsCommand): Promise<AgentsReply> {
    const sent = this.newest.then(async () => {
      const reply = once(this.process, 'message');
      this.process.send(command);
      const [message] = (await reply) as [AgentsReply];
      return message;
    });
    this.newest = sent;
    return sent;
  }
}
