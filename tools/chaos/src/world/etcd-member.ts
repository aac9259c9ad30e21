import { join } from 'node:path';
import type { Machine } from '@cloudless/e2e';
import { MachineProgram } from './machine-program.js';

const CLIENT_PORT = 2379;
const PEER_PORT = 2380;

/** What a member says about itself. */
export interface EtcdStatus {
  readonly memberId: string;
  /** Member id of the leader; `0`: the member knows none. */
  readonly leaderId: string;
}

/** One etcd member on its own machine. */
export class EtcdMember extends MachineProgram {
  constructor(
    machine: Machine,
    /** Directory of the data; the disk of the member. */
    private readonly dataDir: string,
  ) {
    super(machine);
  }

  get clientUrl(): string {
    return `http://${this.machine.address}:${CLIENT_PORT}`;
  }

  get peerUrl(): string {
    return `http://${this.machine.address}:${PEER_PORT}`;
  }

  /** Starts the member, with its earlier data when there is some. Does not wait for the cluster. */
  start(all: readonly EtcdMember[]): void {
    const cluster = all.map(({ name, peerUrl }) => `${name}=${peerUrl}`).join(',');
    const flags = [
      ['--name', this.name],
      ['--data-dir', join(this.dataDir, 'etcd')],
      ['--listen-client-urls', this.clientUrl],
      ['--advertise-client-urls', this.clientUrl],
      ['--listen-peer-urls', this.peerUrl],
      ['--initial-advertise-peer-urls', this.peerUrl],
      ['--initial-cluster', cluster],
      ['--initial-cluster-state', 'new'],
    ];
    this.run(`exec etcd --logger zap ${flags.flat().join(' ')}`);
  }

  /** Asks the member for its state; undefined when the member does not answer within a second. */
  async readStatus(): Promise<EtcdStatus | undefined> {
    try {
      const response = await fetch(`${this.clientUrl}/v3/maintenance/status`, {
        method: 'POST',
        body: '{}',
        signal: AbortSignal.timeout(1_000),
      });
      const { header, leader = '0' } = (await response.json()) as {
        readonly header: { readonly member_id: string };
        readonly leader?: string;
      };
      return { memberId: header.member_id, leaderId: leader };
    } catch {
      return undefined;
    }
  }
}

/** Returns the member that leads, as a majority of the members says; undefined when none does. */
export async function findEtcdLeader(
  members: readonly EtcdMember[],
): Promise<EtcdMember | undefined> {
  const states = await Promise.all(members.map((member) => member.readStatus()));
  return members.find((_, index) => {
    const memberId = states[index]?.memberId;
    return (
      memberId !== undefined &&
      states.filter((state) => state?.leaderId === memberId).length > members.length / 2
    );
  });
}
