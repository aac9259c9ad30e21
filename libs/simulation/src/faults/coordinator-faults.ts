import type { CoordinatorGroup, GroupMember } from '../sim-cluster/coordinator-group.js';
import type { SimNode } from '../parts/sim-node.js';
import type { SimRandom } from '../parts/sim-random.js';
import type { CoordinatorFaultKind } from './fault-plan.js';

/** What the faults of several coordinators need of a world. */
export interface CoordinatorFaultWorld {
  readonly group: CoordinatorGroup;
  readonly nodes: readonly SimNode[];
  later(delayMs: number, action: () => void): void;
}

/**
 * Durations of pauses and partitions, milliseconds: some shorter than a leader lease, most longer.
 */
const PAUSE_MS = [300, 6_000] as const;

/**
 * Injects a fault that only worlds with several coordinators have.
 * @returns A description, or undefined when the fault was not possible at this moment.
 */
export function injectCoordinatorFault(
  world: CoordinatorFaultWorld,
  kind: CoordinatorFaultKind,
  random: SimRandom,
): string | undefined {
  const { group } = world;
  const member = pickMember(group, random);
  const durationMs = random.between(...PAUSE_MS);
  const forDuration = `for ${Math.round(durationMs)} ms`;
  switch (kind) {
    case 'killMember':
      return member.kill(durationMs) ? `${member.id} is killed, ${forDuration}` : undefined;
    case 'killAllCoordinators':
      group.killAll(durationMs);
      return `all coordinators are killed ${forDuration}`;
    case 'pauseMember': {
      const process = member.liveProcess;
      if (process?.isRunning !== true) return undefined;
      process.pause();
      world.later(durationMs, () => process.resume());
      return `${member.id} is paused ${forDuration}`;
    }
    case 'cutStore':
      member.storeLink.cut(durationMs);
      return `${member.id} is cut off from the store ${forDuration}`;
    case 'stallStore': {
      const direction = random.pick(['up', 'down'] as const);
      member.storeLink.stall(durationMs, direction);
      return `no traffic ${direction === 'up' ? 'to' : 'from'} the store of ${member.id} ${forDuration}`;
    }
    case 'lossyStore': {
      const { faults } = member.storeLink;
      Object.assign(faults, { requestLoss: 0.25, replyLoss: 0.25 });
      world.later(durationMs, () => Object.assign(faults, { requestLoss: 0, replyLoss: 0 }));
      return `requests of ${member.id} to the store and answers are lost ${forDuration}`;
    }
    case 'storeStops':
      for (const { storeLink } of group.members) storeLink.cut(durationMs);
      return `no coordinator reaches the store ${forDuration}`;
    case 'lagMember':
      member.viewDelayMs = [20, random.pick([200, 1_500])];
      world.later(durationMs, () => (member.viewDelayMs = [0, 0]));
      return `the view of ${member.id} lags ${forDuration}`;
    case 'cutPeers':
      member.peerLink?.cut(durationMs);
      return `${member.id} does not reach the other coordinators ${forDuration}`;
    case 'cutAgentFromCoordinator': {
      const node = random.pick(world.nodes.filter(({ isDestroyed }) => !isDestroyed));
      node?.link.to(member.address).cut(durationMs);
      return node && `${node.id} and ${member.id} are cut off from each other ${forDuration}`;
    }
    case 'isolateNode': {
      const node = random.pick(world.nodes.filter(({ isDestroyed }) => !isDestroyed));
      const isolatedMs = random.chance(0.5)
        ? random.between(16_000, 22_000)
        : random.between(2_000, 9_000);
      node?.link.cut(isolatedMs);
      return node && `${node.id} is isolated for ${Math.round(isolatedMs)} ms`;
    }
    case 'stepDown': {
      const { leader } = group;
      void leader?.serving?.stepDown();
      return leader && `${leader.id} steps down`;
    }
  }
}

/** Picks the leader in half of the cases. */
function pickMember({ leader, members }: CoordinatorGroup, random: SimRandom): GroupMember {
  const picked = random.pick(members) as GroupMember;
  return random.chance(0.5) ? (leader ?? picked) : picked;
}
