import type { CoordinatorTransport } from '@cloudless/agent-core';
import { sleep, type Clock } from '@cloudless/base';
import type { Controllers } from '@cloudless/controllers';
import type { InjectedBug } from '../sim-cluster/injected-bug.js';
import type { KnownBug } from './known-bug.js';

/** Bugs between agents and the coordinator. */
export const AGENT_BUGS: readonly KnownBug[] = [
  {
    name: 'clock skew measured with wall clocks',
    story:
      'Nodes put their own wall-clock times into heartbeats, and the control plane compared the times with its own clock. When a clock was changed, healthy nodes were declared dead.',
    injection: 'a heartbeat counts only when its wall-clock time is younger than the lease',
    inject: judgeLeasesByWallClock,
    circumstances: () => ({
      agentClock: (clock, nodeId) => (nodeId === SET_BACK_NODE ? createSetBackClock(clock) : clock),
    }),
    plan: { nodes: 3, users: 2, turmoilMs: 20_000, pauseMs: [200, 900], weights: {}, drift: false },
    checker: 'checks/false-losses.ts',
    expectedViolation: /^17: \S+ was declared lost, but node-\d+ was healthy all the time/,
    seed: 2,
  },
  {
    name: 'simultaneous reconnects of all agents',
    story:
      'Thousands of agents lost their server at the same moment and reconnected at the same moment, repeatedly. Each time the server collapsed before it had accepted them.',
    injection: 'every agent dials at a full quarter of a second',
    inject: () => ({ transport: dialAtFullQuarterSeconds }),
    plan: {
      nodes: 24,
      users: 1,
      turmoilMs: 5_000,
      pauseMs: [500, 1_500],
      weights: { killCoordinator: 1 },
      drift: false,
    },
    checker: 'checks/reconnect-storm-checker.ts',
    expectedViolation:
      /^25: \d+ of \d+ agents dialled within \d+ ms after the coordinator returned/,
    seed: 3,
  },
];

/** Node whose wall clock is set back by an hour while faults and user calls still happen. */
const SET_BACK_NODE = 'node-1';
/** Time on the node's monotonic clock, milliseconds. */
const SET_BACK_AT_MS = 11_000;
const SET_BACK_BY_MS = 3_600_000;
/** Lease of a node in every world, milliseconds. */
const LEASE_MS = 3_000;

function createSetBackClock(clock: Clock): Clock {
  return {
    ...clock,
    wallTime: () => clock.wallTime() - (clock.now() > SET_BACK_AT_MS ? SET_BACK_BY_MS : 0),
  };
}

function judgeLeasesByWallClock(): InjectedBug {
  const wallTimeByNode = new Map<string, () => number>();
  return {
    agentClock: (clock, nodeId) => {
      wallTimeByNode.set(nodeId, () => clock.wallTime());
      return clock;
    },
    controllers: (controllers: Controllers, { clock }): Controllers => {
      const { nodes } = controllers;
      const renewLease = nodes.renewLease.bind(nodes);
      nodes.renewLease = (nodeId) => {
        if (clock.wallTime() - (wallTimeByNode.get(nodeId)?.() ?? 0) < LEASE_MS) renewLease(nodeId);
      };
      return controllers;
    },
  };
}

const QUARTER_MS = 250;

function dialAtFullQuarterSeconds(
  transport: CoordinatorTransport,
  clock: Clock,
): CoordinatorTransport {
  return {
    connect: async (address, signal, onReached) => {
      await sleep(clock, QUARTER_MS - (clock.now() % QUARTER_MS), signal);
      return transport.connect(address, signal, onReached);
    },
  };
}
