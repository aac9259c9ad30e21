import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { describeHandover, readSpans } from '../checks/exclusive-spans.js';
import type { ReplicaFacts } from '../checks/replica-changes.js';
import { ONLY, readReplicas, toHeartbeatsFile } from '../load/workloads.js';
import type { AgentMachine } from '../world/agent-machine.js';
import type { World } from '../world/world.js';
import { allowReplacement } from './agent-faults.js';
import { chooseMs, type Fault, type FaultContext, type FaultResult } from './fault.js';

/** Longer than an exclusive replica needs to end, and its replacement to start, milliseconds. */
const LONGER_THAN_EXCLUSIVE_MS = [48_000, 50_000] as const;
/** Time in which a replacement starts on a machine that also does other work, milliseconds. */
const REPLACED_WITHIN_MS = 30_000;
/** Time limit of a read of the replicas, and time between two reads, milliseconds. */
const READ_MS = 10_000;
const POLL_MS = 200;

/**
 * Separates the exclusive replica from the cluster for so long that the replica ends and its
 * replacement runs elsewhere; then everything returns.
 * @param separate - Receives the machine of the replica, and returns the names of what the fault
 *   hit.
 */
const separateExclusive =
  (separate: (world: World, agent: AgentMachine) => Promise<string>) =>
  async ({ world, random }: FaultContext): Promise<FaultResult> => {
    const before = await findExclusive(world);
    const agent = world.requireAgent(before?.nodeId ?? '');
    const separatedAtMs = Date.now();
    const target = await separate(world, agent);
    await pause(chooseMs(random, ...LONGER_THAN_EXCLUSIVE_MS));
    const until = performance.now() + REPLACED_WITHIN_MS;
    let now = await findExclusive(world);
    for (; performance.now() < until && now?.id === before?.id; now = await findExclusive(world))
      await pause(POLL_MS);
    await world.heal();
    const spans = readSpans(readFileSync(toHeartbeatsFile(world), 'utf8'));
    return {
      ...allowReplacement(agent),
      target,
      notes: [describeHandover(spans, before?.id ?? '', separatedAtMs)],
      problems:
        now?.id === before?.id ? [`the exclusive replica ${before?.id} was not replaced`] : [],
    };
  };

/** Returns the exclusive replica that the cluster wants. */
async function findExclusive(world: World): Promise<ReplicaFacts | undefined> {
  return (await readReplicas(world, READ_MS)).get(ONLY)?.at(-1);
}

/** Cuts the agent off from all coordinators. */
async function cut(world: World, agent: AgentMachine): Promise<string> {
  world.isolate(agent.machine, world.coordinatorMachines);
  return agent.name;
}

/**
 * Leaves the agent and the leader alone with each other: the leader loses its lease, and must not
 * keep the replica alive.
 */
async function split(world: World, agent: AgentMachine): Promise<string> {
  const leader = await world.requireLeader();
  const rest = [...world.members, ...world.coordinators].filter((each) => each !== leader);
  const machines = rest.map(({ machine }) => machine);
  world.isolate(leader.machine, machines);
  world.isolate(agent.machine, machines);
  return `${agent.name} ${leader.name}`;
}

/** Kills agent and supervisor; only the lease guard is left. */
async function killBoth(_world: World, agent: AgentMachine): Promise<string> {
  agent.killSupervisor();
  await agent.kill('SIGKILL');
  return agent.name;
}

/** Faults that hit the exclusive replica. */
export const EXCLUSIVE_FAULTS = {
  'cut-exclusive': {
    summary: 'no packet between the agent of the exclusive replica and the coordinators',
    inject: separateExclusive(cut),
  },
  'split-exclusive': {
    summary: 'the agent of the exclusive replica and the leader are alone with each other',
    inject: separateExclusive(split),
  },
  'kill-exclusive': {
    summary: 'SIGKILL of agent and supervisor of the exclusive replica',
    inject: separateExclusive(killBoth),
  },
} as const satisfies Readonly<Record<string, Fault>>;
