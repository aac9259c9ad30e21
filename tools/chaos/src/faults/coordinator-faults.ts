import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { findBundle, readLeadershipChanges, runToEnd } from '@cloudless/e2e';
import { CRASHING, ONLY, toPidsFile } from '../load/workloads.js';
import type { CoordinatorMachine } from '../world/coordinator-machine.js';
import type { World } from '../world/world.js';
import { chooseMs, chooseOne, type Fault, type FaultContext, type FaultResult } from './fault.js';

/** Time until the next leader acts when the store works, milliseconds. */
const NEXT_LEADER_MS = 3_500;
/** The same when the leader of etcd is lost as well, which makes etcd start its leases again. */
const NEXT_LEADER_WITHOUT_ETCD_LEADER_MS = 6_000;
/** Longest time until the next leader acts after a leader that hands over, milliseconds. */
const HAND_OVER_MS = 1_000;
/** Longest time for which an answer of a process that has ended may still be read, milliseconds. */
const LAST_ANSWERS_MS = 500;
/** Shortest and longest time that a program stays away or asleep, milliseconds. */
const SHORT_MS = [1_000, 3_000] as const;
/** More than the lease of a leader, milliseconds. */
const LONGER_THAN_LEASE_MS = [4_000, 6_000] as const;

/** Kills the leader, and starts it again. */
async function killLeader({ world, random }: FaultContext): Promise<FaultResult> {
  const leader = await world.requireLeader();
  const leaderLostAtMs = performance.now();
  await leader.kill('SIGKILL');
  const silentFromMs = performance.now() + LAST_ANSWERS_MS;
  await pause(chooseMs(random, ...SHORT_MS));
  leader.start();
  return { target: leader.name, leaderLostAtMs, silentFromMs, leaderWithinMs: NEXT_LEADER_MS };
}

/** Kills the leaders of the coordinators and of etcd at once, and starts both again. */
async function killBothLeaders({ world, random }: FaultContext): Promise<FaultResult> {
  const [leader, member] = [await world.requireLeader(), await world.requireEtcdLeader()];
  const leaderLostAtMs = performance.now();
  await Promise.all([leader.kill('SIGKILL'), member.kill('SIGKILL')]);
  const silentFromMs = performance.now() + LAST_ANSWERS_MS;
  await pause(chooseMs(random, ...SHORT_MS));
  leader.start();
  member.start(world.members);
  return {
    target: `${leader.name} ${member.name}`,
    leaderLostAtMs,
    silentFromMs,
    leaderWithinMs: NEXT_LEADER_WITHOUT_ETCD_LEADER_MS,
  };
}

/** Kills a coordinator that does not lead, and starts it again. */
async function killFollower({ world, random }: FaultContext): Promise<FaultResult> {
  const follower = chooseOne(random, await world.listFollowers());
  await follower.kill('SIGKILL');
  await pause(chooseMs(random, ...SHORT_MS));
  follower.start();
  return { target: follower.name };
}

/** Stops the process of the leader for longer than its lease; then the old leader goes on. */
async function pauseLeader({ world, random }: FaultContext): Promise<FaultResult> {
  const leader = await world.requireLeader();
  const leaderLostAtMs = performance.now();
  await leader.kill('SIGSTOP');
  await pause(chooseMs(random, ...LONGER_THAN_LEASE_MS));
  await leader.kill('SIGCONT');
  return { target: leader.name, leaderLostAtMs, leaderWithinMs: NEXT_LEADER_MS };
}

/**
 * Drops the packets between the leader and etcd in one direction, for longer than the lease.
 * @param direction - Direction in which packets are lost.
 */
const cutLeaderFromStore =
  (direction: 'out' | 'in') =>
  async ({ world, random }: FaultContext): Promise<FaultResult> => {
    const leader = await world.requireLeader();
    const leaderLostAtMs = performance.now();
    for (const { machine } of world.members) {
      if (direction === 'out') world.machines.cut(leader.machine, machine);
      else world.machines.cut(machine, leader.machine);
    }
    await pause(chooseMs(random, ...LONGER_THAN_LEASE_MS));
    world.machines.healCuts();
    // The lease ends up to one renewal later than with a dead leader, whose connections break.
    return { target: leader.name, leaderLostAtMs, leaderWithinMs: NEXT_LEADER_MS + 500 };
  };

/** Cuts the leader off from the other coordinators and every agent, but not from etcd. */
async function cutLeaderFromPeers({ world, random }: FaultContext): Promise<FaultResult> {
  const leader = await world.requireLeader();
  const followers = await world.listFollowers();
  world.isolate(
    leader.machine,
    followers.map(({ machine }) => machine),
  );
  await pause(chooseMs(random, ...LONGER_THAN_LEASE_MS));
  world.machines.healCuts();
  return { target: leader.name };
}

/** Sends SIGTERM to the leader, which hands over, and starts it again. */
async function terminateLeader({ world }: FaultContext): Promise<FaultResult> {
  const leader = await world.requireLeader();
  const leaderLostAtMs = performance.now();
  await leader.kill('SIGTERM');
  await world.restartCoordinator(leader);
  return { target: leader.name, leaderLostAtMs, leaderWithinMs: HAND_OVER_MS };
}

/** Lets the leader hand over by `cloudlessctl admin step-down`. */
async function stepDown({ world }: FaultContext): Promise<FaultResult> {
  const leader = await world.requireLeader();
  const countChanges = (): number => readLeadershipChanges(leader.lines).length;
  const changesBefore = countChanges();
  const leaderLostAtMs = performance.now();
  const command = [findBundle('cloudlessctl'), 'admin', 'step-down'];
  const { code, stderr } = await runToEnd(process.execPath, command, { env: world.ctlEnv });
  await world.requireLeader();
  const problems = [
    ...(code === 0 ? [] : [`cloudlessctl admin step-down: ${stderr.trim()}`]),
    // on a busy machine it may lead again by now
    ...(countChanges() === changesBefore ? [`${leader.name} leads on after step-down`] : []),
  ];
  return { target: leader.name, leaderLostAtMs, leaderWithinMs: HAND_OVER_MS, problems };
}

/**
 * Replaces one coordinator after the other, by the earlier version when there is one, then all back
 * again, so that two versions run together.
 */
async function replaceCoordinators(context: FaultContext): Promise<FaultResult> {
  const { world, previousBundle } = context;
  const replaceAll = async (bundle: string | undefined): Promise<void> => {
    for (const coordinator of world.coordinators) {
      await coordinator.kill('SIGTERM');
      await world.restartCoordinator(coordinator, bundle);
    }
  };
  if (previousBundle !== undefined) await replaceAll(previousBundle);
  await replaceAll(undefined);
  return { target: 'all' };
}

/**
 * Kills all coordinators. Meanwhile the process of a replica is killed; its agent must start it
 * again by itself.
 */
async function killAllCoordinators({ world, outageMs }: FaultContext): Promise<FaultResult> {
  const fromMs = performance.now();
  await Promise.all(world.coordinators.map((each) => each.kill('SIGKILL')));
  const before = readPids(world).length;
  process.kill(readPids(world).at(-1) ?? 0, 'SIGKILL');
  const killedAtMs = performance.now();
  while (readPids(world).length === before && performance.now() < fromMs + outageMs)
    await pause(POLL_MS);
  const restartedMs = performance.now() - killedAtMs;
  await pause(Math.max(0, fromMs + outageMs - performance.now()));
  const started = readPids(world).length - before;
  const toMs = performance.now();
  await startAll(world.coordinators);
  return {
    target: 'all',
    noWrites: { fromMs: fromMs + ACKNOWLEDGED_BEFORE_MS, toMs },
    // an exclusive replica ends when its node has no coordinator for long enough
    mayBeReplaced: ({ workload }) => workload === CRASHING || workload === ONLY,
    mayEndLog: outageMs > LOG_LASTS_MS,
    notes: [`the killed replica ran again after ${(restartedMs / 1_000).toFixed(2)} s`],
    problems: started === 1 ? [] : [`the killed replica was started ${started} times, not once`],
  };
}

/** `logs -f` gives up 60 s after the loss of all coordinators; shorter outages must not end it. */
const LOG_LASTS_MS = 50_000;
/** Time between two looks at the file of process ids, milliseconds. */
const POLL_MS = 50;
/** Time in which an answer that was sent before a fault may still arrive, milliseconds. */
const ACKNOWLEDGED_BEFORE_MS = 1_000;

async function startAll(coordinators: readonly CoordinatorMachine[]): Promise<void> {
  for (const coordinator of coordinators) coordinator.start();
  await Promise.all(coordinators.map((each) => each.waitUntilReady()));
}

/** Returns the process id of each start of the crashing workload. */
const readPids = (world: World): readonly number[] =>
  readFileSync(toPidsFile(world), 'utf8').split('\n').slice(0, -1).map(Number);

/** Faults that hit coordinators. */
export const COORDINATOR_FAULTS = {
  'kill-leader': { summary: 'SIGKILL of the leader', inject: killLeader },
  'kill-both-leaders': {
    summary: 'SIGKILL of the leaders of coordinators and etcd at once',
    inject: killBothLeaders,
  },
  'kill-follower': { summary: 'SIGKILL of a follower', inject: killFollower },
  'pause-leader': {
    summary: 'SIGSTOP of the leader for longer than its lease',
    inject: pauseLeader,
  },
  'cut-leader-to-store': {
    summary: 'no packet from the leader reaches etcd, for longer than the lease',
    inject: cutLeaderFromStore('out'),
  },
  'cut-store-to-leader': {
    summary: 'no packet from etcd reaches the leader, for longer than the lease',
    inject: cutLeaderFromStore('in'),
  },
  'cut-leader-from-followers': {
    summary: 'no packet between the leader and its followers',
    inject: cutLeaderFromPeers,
  },
  'terminate-leader': { summary: 'SIGTERM of the leader', inject: terminateLeader },
  'step-down': { summary: 'cloudlessctl admin step-down', inject: stepDown },
  'replace-coordinators': {
    summary: 'SIGTERM and start of each coordinator in turn',
    inject: replaceCoordinators,
  },
  'kill-all-coordinators': {
    summary: 'SIGKILL of all coordinators, then of a replica; coordinators return later',
    inject: killAllCoordinators,
  },
} as const satisfies Readonly<Record<string, Fault>>;
