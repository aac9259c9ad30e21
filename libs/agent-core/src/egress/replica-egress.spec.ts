import type { MessageInitShape } from '@bufbuild/protobuf';
import type { WorkloadSpecSchema } from '@cloudless/api';
import { CloudlessError, silentLog, toContainerId, type Log } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { EGRESS_CAPABILITY, type EgressRule } from '@cloudless/runtime';
import { createFakeRuntime } from '@cloudless/runtime/testing';
import { AgentTestBed, aForgetOrder, aStartOrder, aStopOrder } from '../testing/index.js';

type SpecInit = MessageInitShape<typeof WorkloadSpecSchema>;

const WEB = '10.96.0.20';
const DNS = '10.96.0.10';

/** A container that may connect to services. */
const toServices = (...patterns: readonly string[]) =>
  ({
    ...{ image: 'web:1', command: [] },
    network: {
      egress: {
        allowed: patterns.map((value) => ({ destination: { case: 'service' as const, value } })),
      },
    },
  }) satisfies SpecInit;

const networksOf = (rules: readonly EgressRule[] | undefined): readonly string[] | undefined =>
  rules?.map(({ network, ports }) => `${network}${ports?.[0]?.first === 53 ? ' dns' : ''}`);

/** A node with a network proxy, whose runtime limits destinations. */
class EgressBed extends AgentTestBed {
  /** Addresses by pattern; undefined while the proxy does not answer. */
  addresses: Map<string, readonly string[]> | undefined = new Map([['shop/web', [WEB]]]);
  dns: string | undefined = DNS;
  readonly questions: string[] = [];
  /** Networks of each successful call of `limitEgress`. */
  readonly replaced: (readonly string[] | undefined)[] = [];
  /** While set, the runtime refuses other rules. */
  refusal: CloudlessError | undefined;
  attempts = 0;
  readonly messages: string[] = [];
  override log: Log = {
    ...silentLog,
    info: (message) => void this.messages.push(message),
    warn: (message, fields) => void this.messages.push(`${message}: ${String(fields?.['error'])}`),
    child: () => this.log,
  };

  constructor(capabilities: readonly string[] = ['runtime.cri', EGRESS_CAPABILITY]) {
    super();
    this.runtime = createFakeRuntime({ clock: this.clock, capabilities });
    this.network = {
      findProblem: () => '',
      findServices: async () =>
        this.addresses === undefined
          ? undefined
          : {
              services: [],
              ...(this.dns === undefined ? {} : { dns: { server: this.dns, domain: 'd' } }),
            },
      findServiceAddresses: async (patterns) => {
        this.questions.push(patterns.join());
        if (this.addresses === undefined) return undefined;
        const addresses = patterns.flatMap((pattern) => this.addresses?.get(pattern) ?? []);
        return addresses.map((address) => ({ address, ports: [{ protocol: 'tcp', port: 80 }] }));
      },
      openRelay: () => Promise.reject(new CloudlessError('unavailable', 'no relay')),
    };
  }

  override start() {
    this.runtime.limitEgress = async (containerId, rules) => {
      this.attempts += 1;
      if (this.refusal !== undefined) throw this.refusal;
      this.machine.requireContainer(containerId);
      this.replaced.push(networksOf(rules));
    };
    return super.start();
  }

  /** Starts an agent and a replica. */
  static async run(spec: SpecInit, bed = new EgressBed()): Promise<EgressBed> {
    await bed.start();
    await bed.order(spec);
    return bed;
  }

  async order(spec: SpecInit, replicaId = 'web-1'): Promise<void> {
    this.coordinator.sendOrder(aStartOrder({ spec, replicaId }));
    await settle();
  }

  get containerId() {
    return toContainerId(this.requireReport().containerId);
  }

  /** Networks with which the newest container has been started. */
  get started(): readonly string[] | undefined {
    return networksOf(this.machine.requireRequest(this.containerId).network?.egress);
  }

  /** Messages about destinations. */
  get warnings(): readonly string[] {
    return this.messages.filter((message) =>
      message.startsWith('egress limits of the replica not'),
    );
  }
}

describe('a replica with services among its destinations', () => {
  it('starts with their addresses, and follows a service that appears, changes and disappears', async () => {
    const bed = await EgressBed.run(toServices('shop/web', 'shop/later'));
    expect(bed.started).toEqual([`${WEB}/32`, `${DNS}/32 dns`]);
    await bed.clock.advance(5_000);
    expect(bed.replaced).toEqual([]);
    for (const addresses of [['10.96.0.30'], ['10.96.0.31'], []]) {
      bed.addresses?.set('shop/later', addresses);
      await bed.clock.advance(5_000);
    }
    expect(bed.replaced).toEqual([
      [`${WEB}/32`, '10.96.0.30/32', `${DNS}/32 dns`],
      [`${WEB}/32`, '10.96.0.31/32', `${DNS}/32 dns`],
      [`${WEB}/32`, `${DNS}/32 dns`],
    ]);
  });

  it('reaches no service until the proxy answers, and keeps its rules while the proxy is away', async () => {
    const bed = new EgressBed();
    const { addresses } = bed;
    bed.addresses = undefined;
    await EgressBed.run(toServices('shop/web'), bed);
    expect(bed.started).toEqual([]);
    expect(bed.messages).toContain(
      'services not reachable yet: the network proxy has not answered',
    );
    bed.addresses = addresses;
    await bed.clock.advance(1_000);
    bed.addresses = undefined;
    await bed.clock.advance(10_000);
    expect(bed.replaced).toEqual([[`${WEB}/32`, `${DNS}/32 dns`]]);
  });

  it('gets its rules once after a restart of the agent, which does not know them', async () => {
    const bed = await EgressBed.run(toServices('shop/web'));
    await bed.restart();
    await bed.clock.advance(10_000);
    expect(bed.replaced).toEqual([[`${WEB}/32`, `${DNS}/32 dns`]]);
    expect(bed.machine.startCount).toBe(1);
  });

  it('follows the DNS server of the node, and keeps access while none is known', async () => {
    const bed = await EgressBed.run(toServices('shop/web'));
    for (const dns of [undefined, '10.96.0.11']) {
      bed.dns = dns;
      await bed.clock.advance(2_000);
    }
    expect(bed.replaced).toEqual([[`${WEB}/32`, '10.96.0.11/32 dns']]);
  });

  it('starts again with the addresses of that time', async () => {
    const bed = await EgressBed.run(toServices('shop/web'));
    bed.addresses?.set('shop/web', ['10.96.0.21']);
    bed.machine.exit(bed.containerId, 1);
    await bed.clock.advance(10_000);
    expect(bed.started).toEqual(['10.96.0.21/32', `${DNS}/32 dns`]);
    expect([bed.replaced, bed.machine.startCount]).toEqual([[], 2]);
  });

  it('shares one question for each pattern with the other replicas, until the last one ends', async () => {
    const bed = await EgressBed.run(toServices('shop/web', '*'));
    await bed.order(toServices('shop/web'), 'web-2');
    bed.questions.length = 0;
    await bed.clock.advance(1_000);
    expect(bed.questions).toEqual(['shop/web', '*']);
    for (const replicaId of ['web-1', 'web-2']) {
      bed.coordinator.sendOrder(aStopOrder({ replicaId, preStopMs: 0, graceMs: 0 }));
      bed.coordinator.sendOrder(aForgetOrder({ replicaId }));
    }
    await bed.clock.advance(1_000);
    bed.questions.length = 0;
    await bed.clock.advance(10_000);
    expect(bed.questions).toEqual([]);
  });

  it('logs a failure once for each cause, and tries again every second', async () => {
    const bed = await EgressBed.run(toServices('shop/web'));
    bed.addresses?.set('shop/web', []);
    for (const cause of ['unavailable', 'precondition'] as const) {
      bed.refusal = new CloudlessError(cause, `not now: ${cause}`);
      await bed.clock.advance(3_000);
    }
    expect(bed.attempts).toBe(6);
    expect(bed.warnings).toEqual([
      expect.stringContaining('not now: unavailable'),
      expect.stringContaining('not now: precondition'),
    ]);
    bed.refusal = undefined;
    await bed.clock.advance(2_000);
    expect(bed.replaced).toEqual([[`${DNS}/32 dns`]]);
  });

  it.each(['notFound', 'precondition'] as const)(
    'is skipped without a warning when its container ends during the call: %s',
    async (kind) => {
      const bed = await EgressBed.run(toServices('shop/web'));
      bed.addresses?.set('shop/web', []);
      bed.refusal = new CloudlessError(kind, 'the container has ended');
      await bed.clock.advance(1_000);
      bed.coordinator.sendOrder(aStopOrder({ preStopMs: 0, graceMs: 0 }));
      await bed.clock.advance(5_000);
      expect([bed.attempts, bed.warnings]).toEqual([1, []]);
    },
  );

  it('reaches no service on a node without a network proxy, and each start logs that', async () => {
    const bed = new EgressBed();
    bed.network = undefined;
    await EgressBed.run(toServices('shop/web'), bed);
    await bed.clock.advance(5_000);
    expect(bed.started).toEqual([]);
    expect(bed.messages.filter((message) => message.startsWith('services not'))).toEqual([
      'services not reachable: this node has no network proxy',
    ]);
  });
});

describe('a replica with limited destinations', () => {
  it('asks the network proxy nothing when no destination is a service', async () => {
    const cidr = { destination: { case: 'cidr' as const, value: '10.0.0.0/8' } };
    const bed = await EgressBed.run({
      ...{ image: 'web:1', command: [] },
      network: { egress: { allowed: [cidr] } },
    });
    await bed.order({ image: 'web:1', command: [] }, 'web-2');
    expect(bed.started).toEqual(['10.0.0.0/8', `${DNS}/32 dns`]);
    await bed.clock.advance(10_000);
    await bed.restart();
    await bed.clock.advance(10_000);
    expect([bed.questions, bed.replaced]).toEqual([[], []]);
  });

  it.each([
    { name: 'container', spec: toServices('shop/web') },
    { name: 'process', spec: { ...toServices(), image: '', command: ['server'] } },
  ])('does not start as $name on a node without the capability', async ({ spec }) => {
    const bed = await EgressBed.run(spec, new EgressBed(['runtime.cri', 'runtime.process']));
    await bed.clock.advance(10_000);
    expect(bed.machine.startCount).toBe(0);
    expect(bed.summarizeReport()).toMatchObject({
      ready: false,
      reason: expect.stringContaining(EGRESS_CAPABILITY) as unknown,
    });
  });
});
