import { create, toBinary } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { silentLog, type Log } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import {
  Condition_Type,
  InventorySchema,
  KnownCoordinatorsSchema,
  ReconnectTimesSchema,
} from '@cloudless/api';
import { aNodeNetwork, aStartOrder, AgentTestBed } from '../testing/index.js';

function recordingLog(lines: string[]): Log {
  const log: Log = {
    ...silentLog,
    error: (message) => lines.push(`error ${message}`),
    warn: (message) => lines.push(`warn ${message}`),
    child: () => log,
  };
  return log;
}

describe('SessionClient', () => {
  it('sends a ping each 900 ms, independent of other messages', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    await testBed.clock.advance(0);
    const before = testBed.coordinator.pings;
    testBed.coordinator.sendOrder(aStartOrder());
    await testBed.clock.advance(9_000);
    expect(testBed.coordinator.pings - before).toBe(10);
  });

  it('closes the connection and dials again when no ping is answered for the lease', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    await testBed.clock.advance(900);
    testBed.coordinator.answersPings = false;
    await testBed.clock.advance(2_900);
    expect(testBed.coordinator.hellos).toHaveLength(1);
    await testBed.clock.advance(200);
    expect(testBed.coordinator.hellos).toHaveLength(2);
  });

  it('reconnects within 1 s after a restart of the coordinator', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    await testBed.clock.advance(100_000);
    testBed.coordinator.reachable = false;
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(1_000);
    testBed.coordinator.reachable = true;
    await testBed.clock.advance(1_000);
    expect(testBed.coordinator.hellos).toHaveLength(2);
  });

  it('opens a new session with the new capabilities when the capabilities change', async () => {
    const testBed = new AgentTestBed();
    let capabilities = ['runtime.process'];
    testBed.runtime.capabilities = () => capabilities;
    await testBed.start();
    await testBed.clock.advance(60_000);
    capabilities = ['runtime.process', 'runtime.cri'];
    await testBed.clock.advance(60_000);
    expect(testBed.coordinator.hellos.map((hello) => hello.capabilities)).toEqual([
      ['runtime.process'],
      capabilities,
    ]);
  });

  it('opens a new session with the new address when its network proxy gets another one', async () => {
    const testBed = new AgentTestBed();
    testBed.proxyAddress = { address: '', hostId: 'h' };
    await testBed.start();
    await testBed.clock.advance(60_000);
    const address = '10.0.0.5:9443';
    testBed.proxyAddress = { address, hostId: 'h' };
    await testBed.clock.advance(60_000);
    expect(testBed.coordinator.hellos.map(({ network }) => network?.address)).toEqual([
      '',
      address,
    ]);
  });

  it('opens a new session when the machine has a new address, and none when one is gone', async () => {
    const testBed = new AgentTestBed();
    testBed.proxyAddress = { address: '', hostId: 'h' };
    await testBed.start();
    const machineAddresses = ['10.0.0.5', '203.0.113.9'];
    testBed.proxyAddress = { address: '', hostId: 'h', machineAddresses };
    await testBed.clock.advance(60_000);
    for (const present of [['10.0.0.5'], machineAddresses]) {
      testBed.proxyAddress = { address: '', hostId: 'h', machineAddresses: present };
      await testBed.clock.advance(60_000);
    }
    const reported = testBed.coordinator.hellos.map(({ network }) => network?.machineAddresses);
    expect(reported.map((each) => each?.addresses)).toEqual([undefined, machineAddresses]);
  });

  it('includes a replica in the inventory while its first order is being stored', async () => {
    const testBed = new AgentTestBed();
    const save = testBed.store.saveReplica.bind(testBed.store);
    let finishSave: () => void = () => undefined;
    testBed.store.saveReplica = async (replica) => {
      await new Promise<void>((resolve) => (finishSave = resolve));
      return save(replica);
    };
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder());
    await testBed.clock.advance(10);
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(1_000);
    const inventories = testBed.coordinator.received.flatMap((message) =>
      message.case === 'inventory' ? [message.value] : [],
    );
    expect(inventories.at(-1)?.replicas).toMatchObject([{ replicaId: 'web-1', orderRevision: 0n }]);
    finishSave();
    await settle();
    expect(testBed.machine.startCount).toBe(1);
  });

  it('stores at most 32 orders at a time, and accepts further orders when an order is stored', async () => {
    const testBed = new AgentTestBed();
    const waiting: (() => void)[] = [];
    let saveCalls = 0;
    const save = testBed.store.saveReplica.bind(testBed.store);
    testBed.store.saveReplica = async (replica) => {
      saveCalls += 1;
      await new Promise<void>((resolve) => waiting.push(resolve));
      return save(replica);
    };
    await testBed.start();
    for (let index = 0; index < 50; index += 1)
      testBed.coordinator.sendOrder(aStartOrder({ replicaId: `web-${index}` }));
    await settle();
    expect(saveCalls).toBe(32);
    waiting.shift()?.();
    await settle();
    expect(saveCalls).toBeGreaterThan(32);
    testBed.store.saveReplica = save;
    for (let rounds = 0; rounds < 100 && waiting.length > 0; rounds += 1) {
      for (const resolve of waiting.splice(0)) resolve();
      await settle();
    }
    expect(testBed.coordinator.reports.size).toBe(50);
  });

  it('dials without end, at least once a second, and logs a repeated failure once', async () => {
    const lines: string[] = [];
    const testBed = new AgentTestBed();
    testBed.log = recordingLog(lines);
    testBed.coordinator.reachable = false;
    await testBed.start();
    await testBed.clock.advance(600_000);
    expect(testBed.coordinator.dials.length).toBeGreaterThan(600);
    expect(lines).toEqual(['warn no session; replicas keep running']);
    testBed.coordinator.reachable = true;
    await testBed.clock.advance(1_000);
    expect(testBed.agent.connected).toBe(true);
    testBed.coordinator.reachable = false;
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(600_000);
    expect(lines.filter((line) => line.startsWith('warn no session')).length).toBeLessThanOrEqual(
      3,
    );
  });

  it('dials several coordinators in turn, and after a session dials the same coordinator again', async () => {
    const testBed = new AgentTestBed();
    testBed.coordinators = ['http://a', 'http://b'];
    testBed.coordinator.reachable = false;
    await testBed.start();
    await testBed.clock.advance(300);
    expect(testBed.coordinator.dials.slice(0, 4)).toEqual([
      'http://a',
      'http://b',
      'http://a',
      'http://b',
    ]);
    testBed.coordinator.reachable = true;
    await testBed.clock.advance(1_000);
    const last = testBed.coordinator.dials.at(-1);
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(100);
    expect(testBed.coordinator.dials.at(-1)).toBe(last);
  });

  it('dials the leader that a coordinator names, and follows the next leader', async () => {
    const lines: string[] = [];
    const testBed = new AgentTestBed();
    const { clock, coordinator } = testBed;
    testBed.log = recordingLog(lines);
    testBed.coordinators = ['http://a', 'http://b', 'http://c'];
    coordinator.leaderAddress = 'http://c';
    await testBed.start();
    await clock.advance(100);
    expect(coordinator.dials).toEqual(['http://a', 'http://c']);
    await clock.advance(60_000);
    coordinator.epoch = 2n;
    coordinator.leaderAddress = 'http://b';
    coordinator.dropConnections();
    await clock.advance(200);
    expect(coordinator.dials).toEqual(['http://a', 'http://c', 'http://c', 'http://b']);
    expect(testBed.store.identity?.highestEpoch).toBe(2n);
    expect(lines).toEqual(['warn no session; replicas keep running']);
  });

  it('pauses only after a round over all coordinators', async () => {
    const testBed = new AgentTestBed();
    testBed.coordinators = ['http://a', 'http://b', 'http://c'];
    testBed.coordinator.reachable = false;
    await testBed.start();
    await testBed.clock.advance(600_000);
    testBed.coordinator.dials.length = 0;
    await testBed.clock.advance(3_000);
    // At most a second of pause, and 50 ms between two addresses.
    expect(testBed.coordinator.dials.length).toBeGreaterThanOrEqual(7);
  });

  it('dials another coordinator when the leader is silent, for example gone with its machine', async () => {
    const testBed = new AgentTestBed();
    testBed.coordinators = ['http://a', 'http://b'];
    await testBed.start();
    await testBed.clock.advance(900);
    testBed.coordinator.answersPings = false;
    await testBed.clock.advance(4_000);
    expect(testBed.coordinator.dials).toEqual(['http://a', 'http://b']);
  });

  it('finds the next leader although others still name the silent one', async () => {
    const testBed = new AgentTestBed();
    const { clock, coordinator } = testBed;
    testBed.coordinators = ['http://a', 'http://b'];
    coordinator.leaderAddress = 'http://a';
    await testBed.start();
    await clock.advance(900);
    coordinator.answersPings = false;
    coordinator.isGone = (address) => address === 'http://a';
    await clock.advance(5_000);
    coordinator.epoch = 2n;
    coordinator.leaderAddress = 'http://b';
    coordinator.answersPings = true;
    await clock.advance(2_500);
    expect(coordinator.dials.at(-1)).toBe('http://b');
    expect(testBed.store.identity?.highestEpoch).toBe(2n);
  });

  it('leaves a named leader whose machine does not answer after 5 s', async () => {
    const testBed = new AgentTestBed();
    const { clock, coordinator } = testBed;
    coordinator.leaderAddress = 'http://c';
    testBed.coordinators = ['http://a', 'http://b', 'http://c'];
    coordinator.isGone = (address) => address === 'http://c';
    await testBed.start();
    await clock.advance(5_100);
    expect(coordinator.dials.slice(0, 3)).toEqual(['http://a', 'http://c', 'http://b']);
  });

  it('waits 60 s for the TLS handshake of a named leader whose machine answers', async () => {
    const testBed = new AgentTestBed();
    const { clock, coordinator } = testBed;
    testBed.coordinators = ['http://a', 'http://b'];
    coordinator.leaderAddress = 'http://b';
    coordinator.beforeConnect = () =>
      new Promise((resolve) =>
        clock.setTimer(coordinator.dials.at(-1) === 'http://b' ? 40_000 : 0, () => resolve()),
      );
    await testBed.start();
    await clock.advance(41_000);
    expect(coordinator.dials).toEqual(['http://a', 'http://b']);
    expect(testBed.agent.connected).toBe(true);
  });

  it('waits 20 s for the Welcome of a coordinator that answers pings, before it dials another', async () => {
    const testBed = new AgentTestBed();
    const { clock, coordinator } = testBed;
    testBed.coordinators = ['http://a', 'http://b'];
    coordinator.sendsWelcome = false;
    await testBed.start();
    await clock.advance(19_900);
    expect(coordinator.dials).toEqual(['http://a']);
    await clock.advance(200);
    expect(coordinator.dials).toEqual(['http://a', 'http://b']);
  });

  it('leaves a coordinator that sends no Welcome and answers no ping after 10 s', async () => {
    const testBed = new AgentTestBed();
    const { clock, coordinator } = testBed;
    testBed.coordinators = ['http://a', 'http://b'];
    coordinator.sendsWelcome = false;
    coordinator.answersPings = false;
    await testBed.start();
    await clock.advance(9_900);
    expect(coordinator.dials).toEqual(['http://a']);
    await clock.advance(200);
    expect(coordinator.dials).toEqual(['http://a', 'http://b']);
  });

  it('tells other coordinators which leader it does not reach', async () => {
    const testBed = new AgentTestBed();
    const { clock, coordinator } = testBed;
    testBed.coordinators = ['http://a', 'http://b'];
    coordinator.epoch = 7n;
    await testBed.start();
    coordinator.isGone = (address) => address === 'http://a';
    coordinator.dropConnections();
    await clock.advance(10_000);
    expect(coordinator.dials).toEqual(['http://a', 'http://a', 'http://b']);
    expect(
      coordinator.hellos.map(({ unreachableEpoch: epoch, unreachableAddress: address }) =>
        `${epoch} ${address}`.trim(),
      ),
    ).toEqual(['0', '7 http://a']);
  });

  it('waits longer in each round in which every machine accepts the connection and none answers', async () => {
    const testBed = new AgentTestBed();
    const { clock, coordinator } = testBed;
    testBed.coordinators = ['http://a', 'http://b'];
    let latencyMs = 1e9;
    coordinator.beforeConnect = () =>
      new Promise((resolve) => clock.setTimer(latencyMs, () => resolve()));
    await testBed.start();
    // 10 s for each address, then 20, then 40 s, and less than a second between two rounds.
    await clock.advance(62_000);
    const round = ['http://a', 'http://b'];
    expect(coordinator.dials).toEqual([...round, ...round, 'http://a']);
    latencyMs = 30_000;
    await clock.advance(72_000);
    expect(testBed.agent.connected).toBe(true);
  });

  it('waits no longer for machines that do not accept the connection', async () => {
    const testBed = new AgentTestBed();
    const { clock, coordinator } = testBed;
    testBed.coordinators = ['http://a', 'http://b'];
    coordinator.isGone = () => true;
    await testBed.start();
    await clock.advance(120_000);
    coordinator.dials.length = 0;
    await clock.advance(12_000);
    expect(coordinator.dials.length).toBeGreaterThanOrEqual(2);
  });

  it('remembers the coordinators that the cluster names, also after a restart', async () => {
    const testBed = new AgentTestBed();
    testBed.coordinators = ['https://a'];
    await testBed.start();
    testBed.coordinator.send({
      case: 'coordinators',
      value: create(KnownCoordinatorsSchema, {
        coordinators: [
          { id: 'a', address: 'https://a' },
          { id: 'b', address: 'https://b' },
        ],
      }),
    });
    await settle();
    await testBed.kill();
    testBed.coordinator.reachable = false;
    testBed.coordinator.dials.length = 0;
    await testBed.start();
    await testBed.clock.advance(100);
    expect(testBed.coordinator.dials.slice(0, 2)).toEqual(['https://a', 'https://b']);
  });

  it('spreads its dial after the loss of the leader as the newest message says', async () => {
    const testBed = new AgentTestBed();
    const { clock, coordinator } = testBed;
    testBed.coordinators = ['http://a', 'http://b'];
    await testBed.start();
    coordinator.send({
      case: 'reconnectTimes',
      value: create(ReconnectTimesSchema, { leaderLossSpread: durationFromMs(1e9) }),
    });
    await settle();
    coordinator.reachable = false;
    coordinator.dropConnections();
    await clock.advance(60_000);
    expect(coordinator.dials).toEqual(['http://a', 'http://a']);
  });

  it('uses new coordinators although they cannot be stored', async () => {
    const lines: string[] = [];
    const testBed = new AgentTestBed();
    testBed.log = recordingLog(lines);
    testBed.coordinators = ['https://a'];
    await testBed.start();
    testBed.store.failure = new Error('disk full');
    testBed.coordinator.send({
      case: 'coordinators',
      value: create(KnownCoordinatorsSchema, {
        coordinators: [{ id: 'b', address: 'https://b' }],
      }),
    });
    await settle();
    expect(lines).toEqual(['warn coordinators not stored']);
    expect(testBed.agent.connected).toBe(true);
    testBed.coordinator.reachable = false;
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(1_300);
    expect(testBed.coordinator.dials).toContain('https://b');
  });

  it('dials again after 60 s when the only coordinator accepts the connection and never answers', async () => {
    const testBed = new AgentTestBed();
    testBed.coordinator.sendsWelcome = false;
    await testBed.start();
    await testBed.clock.advance(61_000);
    expect(testBed.coordinator.hellos).toHaveLength(2);
  });

  it('waits 60 s for the connection to the only coordinator, and 60 s more for the Welcome', async () => {
    const testBed = new AgentTestBed();
    const { clock, coordinator } = testBed;
    coordinator.beforeConnect = () =>
      new Promise((resolve) => clock.setTimer(59_000, () => resolve()));
    coordinator.sendsWelcome = false;
    await testBed.start();
    await clock.advance(118_000);
    expect([coordinator.dials, coordinator.openSessions]).toEqual([[expect.anything()], 1]);
    await clock.advance(2_000);
    expect(coordinator.dials).toHaveLength(2);
  });

  it('rejects a Welcome with an unsupported protocol version', async () => {
    const lines: string[] = [];
    const testBed = new AgentTestBed();
    testBed.log = recordingLog(lines);
    testBed.coordinator.protocol = 7;
    await testBed.start();
    await testBed.clock.advance(10_000);
    expect(testBed.agent.connected).toBe(false);
    expect(lines).toEqual(['error no session: the coordinator rejects this agent']);
  });

  it('sends usage at its interval, and at once when a condition changes', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    const usages = () =>
      testBed.coordinator.received.flatMap((message) =>
        message.case === 'usage' ? [message.value] : [],
      );
    await testBed.clock.advance(30_000);
    expect(usages()).toHaveLength(4);
    testBed.reading = {
      ...testBed.reading,
      diskPressure: { status: true, reason: '9 of 10 MiB are in use' },
    };
    await testBed.clock.advance(2_000);
    expect(usages()).toHaveLength(5);
    expect(usages().at(-1)?.conditions).toMatchObject([
      { status: false },
      { status: true, reason: '9 of 10 MiB are in use' },
      { status: false },
      { status: false },
      { status: false },
      { status: false },
    ]);
  });

  it('sends what the network proxy cannot do at once, and each change', async () => {
    let problem = '';
    const testBed = new AgentTestBed();
    testBed.network = aNodeNetwork({ findProblem: () => problem });
    await testBed.start();
    const listReported = () =>
      testBed.coordinator.received.flatMap(({ case: kind, value }) =>
        kind === 'usage'
          ? value.conditions.filter(({ type }) => type === Condition_Type.NETWORK_PROXY_DEGRADED)
          : [],
      );
    for (const reason of ['port 53 is taken', 'no route', '']) {
      problem = reason;
      await testBed.clock.advance(2_000);
      expect(listReported().at(-1)).toMatchObject({ status: reason !== '', reason });
    }
    // The first message follows the admission.
    expect(listReported().map(({ reason }) => reason)).toEqual([
      ...['', 'port 53 is taken', 'no route', ''],
    ]);
  });

  it('reports at once that the disk of the node is full, and that it no longer is', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    const { reading } = testBed;
    const listReported = () =>
      testBed.coordinator.received.flatMap(({ case: kind, value }) =>
        kind === 'usage'
          ? value.conditions.filter(({ type }) => type === Condition_Type.DISK_FULL)
          : [],
      );
    for (const diskFull of [{ status: true, reason: '19 of 20 MiB are in use' }, undefined]) {
      testBed.reading = diskFull === undefined ? reading : { ...reading, diskFull };
      await testBed.clock.advance(2_000);
      expect(listReported().at(-1)).toMatchObject(diskFull ?? { status: false, reason: '' });
    }
  });

  it('splits a large inventory into messages of at most 256 KiB, and marks the last message', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    for (let replica = 0; replica < 1_500; replica += 1) {
      testBed.coordinator.sendOrder(
        aStartOrder({
          replicaId: `web-${replica}`,
          spec: {
            ports: [
              { name: 'a'.repeat(60), containerPort: 80 },
              { name: 'b'.repeat(60), containerPort: 81 },
            ],
          },
        }),
      );
    }
    while (testBed.store.replicas.size < 1_500) await settle();
    testBed.coordinator.received.length = 0;
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(100);
    for (let turn = 0; turn < 20; turn += 1) await settle();
    const chunks = testBed.coordinator.received.flatMap((message) =>
      message.case === 'inventory' ? [message.value] : [],
    );
    expect(chunks.length).toBeGreaterThan(1);
    expect(chunks.map(({ last }) => last)).toEqual(
      chunks.map((_, index) => index === chunks.length - 1),
    );
    expect(
      Math.max(...chunks.map((chunk) => toBinary(InventorySchema, chunk).length)),
    ).toBeLessThanOrEqual(256 * 1024);
    expect(chunks.flatMap(({ replicas }) => replicas)).toHaveLength(1_500);
  });

  it('sends Goodbye when the agent stops, and leaves no timer or session while containers keep running', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    await testBed.stop();
    expect(testBed.coordinator.received.at(-1)).toMatchObject({ case: 'goodbye' });
    expect((await testBed.runtime.list()).map(({ phase }) => phase)).toEqual(['running']);
    expect(testBed.clock.pendingTimers).toBe(0);
    expect(testBed.coordinator.openSessions).toBe(0);
  });
});

describe('Agent.stop', () => {
  it('stops all containers when stopWorkloads is true', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    await testBed.stop({ stopWorkloads: true });
    expect(
      (await testBed.runtime.list()).map(({ phase, exitCode }) => ({ phase, exitCode })),
    ).toEqual([{ phase: 'exited', exitCode: 143 }]);
  });
});
