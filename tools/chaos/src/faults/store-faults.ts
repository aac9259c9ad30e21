import { setTimeout as pause } from 'node:timers/promises';
import { Code } from '@connectrpc/connect';
import { ONLY } from '../load/workloads.js';
import type { World } from '../world/world.js';
import { chooseMs, chooseOne, type Fault, type FaultContext, type FaultResult } from './fault.js';

/** Shortest and longest time that a member is away, milliseconds. */
const AWAY_MS = [3_000, 5_000] as const;
/** Time in which answers to writes before the fault may still arrive, milliseconds. */
const IN_FLIGHT_MS = 2_000;
/** Time until the next leader acts after etcd has a majority again, milliseconds. */
const AFTER_ETCD_LEADER_MS = 6_000;

/** Kills the leader of etcd, and starts it again. */
async function killEtcdLeader({ world, random }: FaultContext): Promise<FaultResult> {
  const member = await world.requireEtcdLeader();
  const leaderLostAtMs = performance.now();
  await member.kill('SIGKILL');
  await pause(chooseMs(random, ...AWAY_MS));
  member.start(world.members);
  return { target: member.name, leaderLostAtMs, leaderWithinMs: AFTER_ETCD_LEADER_MS };
}

/** Stops the process of the leader of etcd. */
async function pauseEtcdLeader({ world, random }: FaultContext): Promise<FaultResult> {
  const member = await world.requireEtcdLeader();
  const leaderLostAtMs = performance.now();
  await member.kill('SIGSTOP');
  await pause(chooseMs(random, ...AWAY_MS));
  await member.kill('SIGCONT');
  return { target: member.name, leaderLostAtMs, leaderWithinMs: AFTER_ETCD_LEADER_MS };
}

/** Kills a member of etcd that does not lead, and starts it again. */
async function loseMember({ world, random }: FaultContext): Promise<FaultResult> {
  const leader = await world.requireEtcdLeader();
  const member = chooseOne(
    random,
    world.members.filter((each) => each !== leader),
  );
  await member.kill('SIGKILL');
  await pause(chooseMs(random, ...AWAY_MS));
  member.start(world.members);
  return { target: member.name };
}

/** Kills the majority of etcd: no write may be acknowledged until a member returns. */
async function loseMajority({ world, random }: FaultContext): Promise<FaultResult> {
  const leader = await world.requireEtcdLeader();
  const other = world.members.find((each) => each !== leader);
  const victims = other === undefined ? [leader] : [leader, other];
  const fromMs = performance.now() + IN_FLIGHT_MS;
  await Promise.all(victims.map((member) => member.kill('SIGKILL')));
  await pause(IN_FLIGHT_MS);
  const [refused] = await Promise.all([refuseWrites(world), pause(chooseMs(random, ...AWAY_MS))]);
  const toMs = performance.now();
  for (const member of victims) member.start(world.members);
  return {
    ...refused,
    target: victims.map(({ name }) => name).join(' '),
    noWrites: { fromMs, toMs },
    // an exclusive replica ends when its node has no coordinator that leads for long enough
    mayBeReplaced: ({ workload }) => workload === ONLY,
  };
}

/** Deadline of a write without majority: longer than a coordinator waits for a leader, ms. */
const REFUSED_WITHIN_MS = 20_000;

/** Sends a write to each coordinator, which must say UNAVAILABLE before the deadline. */
async function refuseWrites(world: World): Promise<Pick<FaultResult, 'notes' | 'problems'>> {
  const spec = { command: ['sleep', '1000'], replicas: 0 };
  const results = await world.sendOnce(
    (client, options) => client.createWorkload({ name: 'refused', spec }, options),
    REFUSED_WITHIN_MS,
  );
  const texts = results.map(({ code, tookMs }) => {
    const name = code === undefined ? 'success' : Code[code];
    return `${name} after ${(tookMs / 1_000).toFixed(1)} s`;
  });
  const isRefused = results.every(({ code }) => code === Code.Unavailable);
  const note = `a write to each coordinator: ${texts.join(', ')}`;
  return { notes: [note], problems: isRefused ? [] : [`${note}; must be Unavailable`] };
}

/** Fills the disk of a member; frees the disk and starts the member again if it has ended. */
async function fillDisk({ world, random }: FaultContext): Promise<FaultResult> {
  const member = world.memberOnSmallDisk;
  world.disk?.fill();
  await pause(chooseMs(random, ...AWAY_MS));
  world.disk?.free();
  if (!member.isRunning) member.start(world.members);
  return { target: member.name };
}

/** Faults that hit etcd. */
export const STORE_FAULTS = {
  'kill-etcd-leader': { summary: 'SIGKILL of the leader of etcd', inject: killEtcdLeader },
  'pause-etcd-leader': { summary: 'SIGSTOP of the leader of etcd', inject: pauseEtcdLeader },
  'lose-etcd-member': { summary: 'SIGKILL of another member of etcd', inject: loseMember },
  'lose-etcd-majority': { summary: 'SIGKILL of two of three members', inject: loseMajority },
  'fill-etcd-disk': { summary: 'the disk of a member of etcd is full', inject: fillDisk },
} as const satisfies Readonly<Record<string, Fault>>;
