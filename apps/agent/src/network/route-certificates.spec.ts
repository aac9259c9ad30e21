import fc from 'fast-check';
import { Code, ConnectError } from '@connectrpc/connect';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import type { ServedRoute, ServedSecretVersion } from '@cloudless/mesh';
import type { CertificatePair } from '@cloudless/secrets';
import { createTestPair } from '../testing/test-certificates.js';
import type { ReceivedCertificate } from './certificate-copies.js';
import { RouteCertificates, type CertificateConnection } from './route-certificates.js';

let pairs: readonly CertificatePair[];
beforeAll(async () => {
  pairs = await Promise.all([createTestPair('one.example.com'), createTestPair('two.example.com')]);
});

const pairOf = (version: number): CertificatePair =>
  pairs[version % 2] ?? { certificate: '', key: '' };

const version = (number: number, secretUid = 'u1'): ServedSecretVersion => ({
  ...{ secretUid, version: number },
});

const aRoute = (name: string, secret: string, newest?: ServedSecretVersion): ServedRoute => ({
  ...{ namespace: 'shop', name, hosts: [], rules: [] },
  ...{ redirectToHttps: false, maxHeaderBytes: 0, maxBodyBytes: 0 },
  tls: { secret: `shop/${secret}`, ...(newest === undefined ? {} : { version: newest }) },
});

type Sent = ServedSecretVersion & { readonly pair?: CertificatePair };

/** A proxy's certificates, with a coordinator that answers what `answer` returns. */
class Test {
  readonly clock = new ManualClock();
  readonly requests: { readonly name: string; readonly connection: string }[] = [];
  readonly options: unknown[] = [];
  open = 0;
  maxOpen = 0;
  changes = 0;
  stored: ReadonlyMap<string, ReceivedCertificate> = new Map();
  mayRemove = false;
  answer: (route: string, connection: string) => Sent | Promise<Sent> = () => version(1);
  readonly certificates: RouteCertificates;

  constructor(copies: ReadonlyMap<string, ReceivedCertificate> = new Map(), seed = 1) {
    this.certificates = new RouteCertificates({
      ...{ nodeId: 'n1', clock: this.clock, random: createSeededRandom(seed), log: silentLog },
      copies: {
        load: () => Promise.resolve(copies),
        keep: (received, mayRemove) => {
          this.stored = received;
          this.mayRemove = mayRemove;
        },
        stop: () => undefined,
      },
      onChange: () => (this.changes += 1),
    });
  }

  connect(connection = 'first'): () => void {
    const client = {
      getRouteCertificate: async (
        request: { readonly nodeId: string; readonly namespace: string; readonly name: string },
        options: unknown,
      ) => {
        expect(request).toMatchObject({ nodeId: 'n1', namespace: 'shop' });
        this.requests.push({ name: request.name, connection });
        this.options.push(options);
        this.open += 1;
        this.maxOpen = Math.max(this.maxOpen, this.open);
        try {
          const { pair, ...sent } = await this.answer(request.name, connection);
          const { certificate, key } = pair ?? pairOf(sent.version);
          return {
            ...{ version: sent },
            ...{ certificate: Buffer.from(certificate), key: Buffer.from(key) },
          };
        } finally {
          this.open -= 1;
        }
      },
    };
    return this.certificates.useConnection({ client } as unknown as CertificateConnection);
  }

  get names(): readonly string[] {
    return this.requests.map(({ name }) => name);
  }

  /** Advances to the next call, and returns the time until then, milliseconds. */
  async untilCall(withinMs = 60_000): Promise<number> {
    const [count, fromMs] = [this.requests.length, this.clock.now()];
    while (this.requests.length === count && (await this.clock.step(fromMs + withinMs)));
    expect(this.requests.length).toBe(count + 1);
    return this.clock.now() - fromMs;
  }
}

const refuse = (code: Code, message: string) => (): never => {
  throw new ConnectError(message, code);
};

describe('certificates of routes from secrets', () => {
  it('are fetched once for all routes that name a secret', async () => {
    const test = new Test();
    test.connect();
    test.certificates.update(
      [
        aRoute('b', 'tls', version(1)),
        aRoute('a', 'tls', version(1)),
        aRoute('c', 'x', version(1)),
      ],
      true,
    );
    expect(test.certificates.problems).toEqual([
      'route "shop/a": the certificate of the secret "shop/tls" has not arrived yet',
      'route "shop/c": the certificate of the secret "shop/x" has not arrived yet',
    ]);
    await settle();
    expect(test.names).toEqual(['a', 'c']);
    expect(test.options[0]).toMatchObject({ timeoutMs: 10_000 });
    expect(test.certificates.read('shop/tls')).toEqual(pairOf(1));
    expect([test.certificates.problems, test.changes]).toEqual([[], 2]);
    expect(test.stored.get('shop/tls')?.version).toEqual(version(1));
    test.certificates.update([aRoute('a', 'tls', version(1)), aRoute('c', 'x', version(1))], true);
    await test.clock.advance(3_600_000);
    expect(test.requests).toHaveLength(2);
  });

  it('are asked for with the next route after a refusal, with delays that grow to 30 s', async () => {
    const test = new Test();
    test.answer = refuse(Code.PermissionDenied, 'no audience');
    test.connect();
    test.certificates.update(
      [aRoute('a', 'tls', version(1)), aRoute('b', 'tls', version(1))],
      true,
    );
    await settle();
    expect(test.certificates.problems).toEqual([
      'route "shop/a": the certificate of the secret "shop/tls" cannot be fetched: no audience',
    ]);
    for (const delayMs of [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]) {
      const waitedMs = await test.untilCall();
      expect(waitedMs).toBeGreaterThan(delayMs / 2);
      expect(waitedMs).toBeLessThanOrEqual(delayMs);
    }
    expect(test.names.slice(0, 4)).toEqual(['a', 'b', 'a', 'b']);
    test.answer = () => version(1);
    await test.untilCall();
    expect([test.certificates.read('shop/tls'), test.certificates.problems]).toEqual([
      pairOf(1),
      [],
    ]);
    await test.clock.advance(3_600_000);
    expect(test.requests).toHaveLength(10);
  });

  it('are fetched at once over a new connection, and when the routes change', async () => {
    const test = new Test();
    test.certificates.update([aRoute('a', 'tls', version(1))], true);
    expect(test.certificates.problems).toEqual([
      'route "shop/a": the certificate of the secret "shop/tls" has not arrived: no coordinator is connected',
    ]);
    test.answer = refuse(Code.Unimplemented, 'unknown method');
    const end = test.connect();
    await test.clock.advance(20_000);
    expect(test.certificates.problems).toEqual([
      'route "shop/a": the certificate of the secret "shop/tls" cannot be fetched: the coordinator is of a release without certificates from secrets; upgrade it',
    ]);
    let fail: (reason: Error) => void = () => undefined;
    test.answer = (_, connection) =>
      connection === 'first'
        ? new Promise((_resolve, reject) => (fail = reject))
        : refuse(Code.Unavailable, 'no leader')();
    await test.untilCall();
    end();
    const count = test.requests.length;
    const endSecond = test.connect('second');
    await settle();
    expect(test.requests).toHaveLength(count);
    fail(new ConnectError('closed', Code.Canceled));
    await settle();
    expect(test.requests.slice(count)).toEqual([{ name: 'a', connection: 'second' }]);
    endSecond();
    await test.clock.advance(3_600_000);
    expect(test.requests).toHaveLength(count + 1);
    test.connect('third');
    await settle();
    test.answer = () => version(1);
    test.certificates.update([aRoute('b', 'tls', version(1))], true);
    await settle();
    expect(test.requests.slice(count + 1)).toEqual([
      { name: 'a', connection: 'third' },
      { name: 'b', connection: 'third' },
    ]);
    expect(test.certificates.read('shop/tls')).toEqual(pairOf(1));
  });

  it('are not fetched while the coordinator names no version', async () => {
    const test = new Test();
    test.connect();
    test.certificates.update([aRoute('a', 'tls')], true);
    await test.clock.advance(60_000);
    expect(test.requests).toEqual([]);
    const missing = 'route "shop/a": the coordinator knows no secret "shop/tls"';
    expect(test.certificates.problems).toEqual([missing]);
    test.certificates.update([aRoute('a', 'tls', version(1))], true);
    await settle();
    test.certificates.update([aRoute('a', 'tls')], true);
    expect(test.certificates.problems).toEqual([`${missing}; the earlier certificate is served`]);
    expect(test.certificates.read('shop/tls')).toEqual(pairOf(1));
  });

  it.each([
    { name: 'version', newest: version(2) },
    { name: 'secret of the same name', newest: version(1, 'u2') },
    { name: 'version from a backup', newest: version(0) },
  ])('are replaced within 2 s when there is another $name', async ({ newest }) => {
    const waits = new Set<number>();
    for (const seed of [1, 2, 3, 4, 5]) {
      const test = new Test(new Map(), seed);
      test.connect();
      test.certificates.update([aRoute('a', 'tls', version(1))], true);
      await settle();
      test.answer = () => ({ ...newest, pair: pairOf(0) });
      test.certificates.update([aRoute('a', 'tls', newest)], true);
      await settle();
      expect(test.certificates.read('shop/tls')).toEqual(pairOf(1));
      waits.add(await test.untilCall(2_000));
      expect(test.certificates.read('shop/tls')).toEqual(pairOf(0));
      expect(test.certificates.problems).toEqual([]);
      await test.clock.advance(3_600_000);
      expect(test.requests).toHaveLength(2);
    }
    expect(waits.size).toBe(5);
  });

  it.each<{ name: string; answer: () => Sent; cause: string }>([
    {
      name: 'the secret has expired',
      answer: refuse(Code.FailedPrecondition, 'the secret "tls" has expired'),
      cause: 'the secret "tls" has expired',
    },
    {
      name: 'the coordinator is older',
      answer: refuse(Code.Unimplemented, 'unknown method'),
      cause: 'the coordinator is of a release without certificates from secrets; upgrade it',
    },
    {
      name: 'the key belongs to another certificate',
      answer: () => ({
        ...version(2),
        pair: { certificate: pairOf(0).certificate, key: pairOf(1).key },
      }),
      cause: 'tls.key of secret "shop/tls" does not belong to the first certificate in tls.crt',
    },
    {
      name: 'the coordinator sends an earlier version',
      answer: () => version(1),
      cause: 'the coordinator has sent version 1 instead of version 2',
    },
  ])('stay when $name, until the coordinator sends the newest', async ({ answer, cause }) => {
    const test = new Test();
    test.connect();
    test.certificates.update([aRoute('a', 'tls', version(1))], true);
    await settle();
    test.answer = answer;
    test.certificates.update([aRoute('a', 'tls', version(2))], true);
    await test.clock.advance(30_000);
    expect(test.requests.length).toBeGreaterThan(4);
    expect(test.requests.length).toBeLessThan(15);
    expect([test.certificates.read('shop/tls'), test.changes]).toEqual([pairOf(1), 1]);
    expect(test.certificates.problems).toEqual([
      `route "shop/a": the certificate of the secret "shop/tls" cannot be fetched: ${cause}; the earlier certificate is served`,
    ]);
    test.answer = () => version(2);
    await test.clock.advance(30_000);
    expect([test.certificates.read('shop/tls'), test.changes]).toEqual([pairOf(2), 2]);
    expect(test.certificates.problems).toEqual([]);
  });

  it.each([
    { name: 'version', sent: version(3) },
    { name: 'secret of the same name', sent: version(1, 'u2') },
  ])('are taken from a leader whose $name is not in the feed yet', async ({ sent }) => {
    const test = new Test();
    test.connect();
    test.certificates.update([aRoute('a', 'tls', version(1))], true);
    await settle();
    test.answer = () => ({ ...sent, pair: pairOf(2) });
    test.certificates.update([aRoute('a', 'tls', version(2))], true);
    await test.untilCall(2_000);
    expect(test.certificates.read('shop/tls')).toEqual(pairOf(2));
    test.certificates.update([aRoute('a', 'tls', sent)], true);
    await test.clock.advance(60_000);
    expect([test.requests.length, test.certificates.problems]).toEqual([2, []]);
  });

  it('are fetched by at most 4 calls at a time', async () => {
    const test = new Test();
    const answers: ((sent: Sent) => void)[] = [];
    test.answer = () => new Promise((resolve) => answers.push(resolve));
    test.connect();
    const routes = [1, 2, 3, 4, 5, 6].map((each) => aRoute(`r${each}`, `s${each}`, version(1)));
    test.certificates.update(routes, true);
    await settle();
    expect(test.names).toEqual(['r1', 'r2', 'r3', 'r4']);
    for (let count = 0; count < 6; count += 1) {
      answers.shift()?.(version(1));
      await settle();
    }
    expect([test.names.length, test.maxOpen, test.changes]).toEqual([6, 4, 6]);
  });

  it('are forgotten when no route names the secret, only while all routes are known', async () => {
    const copies = new Map([['shop/tls', { version: version(1), pair: pairOf(1) }]]);
    const test = new Test(copies);
    await test.certificates.load();
    test.certificates.update([], false);
    test.certificates.update([aRoute('a', 'tls', version(1))], false);
    expect(test.certificates.read('shop/tls')).toEqual(pairOf(1));
    test.certificates.update([aRoute('a', 'tls', version(1))], true);
    expect([...test.stored.keys()]).toEqual(['shop/tls']);
    test.certificates.update([aRoute('a', 'other', version(1))], true);
    expect(test.certificates.read('shop/tls')).toBeUndefined();
    expect([[...test.stored.keys()], test.mayRemove]).toEqual([[], true]);
  });

  it('that arrive after no route names the secret, or after a stop, are not kept', async () => {
    const test = new Test();
    let answer: (sent: Sent) => void = () => undefined;
    test.answer = () => new Promise((resolve) => (answer = resolve));
    test.connect();
    test.certificates.update([aRoute('a', 'tls', version(1))], true);
    await settle();
    test.certificates.update([], true);
    answer(version(1));
    await settle();
    test.certificates.update([aRoute('a', 'tls', version(1))], true);
    await settle();
    test.certificates.stop();
    expect((test.options[1] as { signal: AbortSignal }).signal.aborted).toBe(true);
    answer(version(1));
    test.connect();
    test.certificates.update([aRoute('b', 'tls', version(2))], true);
    await test.clock.advance(60_000);
    expect([test.names, test.changes, test.stored.size]).toEqual([['a', 'a'], 0, 0]);
    expect(test.clock.pendingTimers).toBe(0);
  });

  it('are those of the named secrets at the end, whatever happened before', async () => {
    const arbStep = fc.oneof(
      fc.record({ kind: fc.constant('rotate' as const), secret: fc.constantFrom('s1', 's2') }),
      fc.record({ kind: fc.constant('recreate' as const), secret: fc.constantFrom('s1', 's2') }),
      fc.record({ kind: fc.constant('name' as const), secret: fc.constantFrom('s1', 's2', '') }),
      fc.record({ kind: fc.constant('refuse' as const), refuses: fc.boolean() }),
      fc.record({ kind: fc.constant('connect' as const), isOpen: fc.boolean() }),
      fc.record({ kind: fc.constant('wait' as const), ms: fc.nat(3_000) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(arbStep, { maxLength: 30 }), async (steps) => {
        const test = new Test();
        const newest = new Map([
          ['s1', version(1)],
          ['s2', version(1)],
        ]);
        let [named, refuses, end] = ['s1', false, (): void => undefined];
        let uids = 1;
        const routeNames = new Map([
          ['s1', ['a', 'b']],
          ['s2', ['c']],
        ]);
        test.answer = (route) => {
          if (refuses) return refuse(Code.Unavailable, 'no leader')();
          return newest.get(route === 'c' ? 's2' : 's1') ?? version(1);
        };
        const update = () =>
          test.certificates.update(
            (routeNames.get(named) ?? []).map((name) => aRoute(name, named, newest.get(named))),
            true,
          );
        for (const step of steps) {
          const known = newest.get(step.kind === 'rotate' ? step.secret : '');
          if (step.kind === 'rotate' && known !== undefined)
            newest.set(step.secret, version(known.version + 1, known.secretUid));
          if (step.kind === 'recreate') newest.set(step.secret, version(1, `u${(uids += 1)}`));
          if (step.kind === 'name') named = step.secret;
          if (step.kind === 'refuse') refuses = step.refuses;
          if (step.kind === 'connect') {
            end();
            if (step.isOpen) end = test.connect();
          }
          if (step.kind === 'wait') await test.clock.advance(step.ms);
          update();
        }
        refuses = false;
        test.connect();
        update();
        await test.clock.advance(2_000);
        const expected = named === '' ? [] : [[`shop/${named}`, newest.get(named)]];
        expect([...test.stored].map(([secret, { version: each }]) => [secret, each])).toEqual(
          expected,
        );
        expect(test.certificates.problems).toEqual([]);
        expect(test.maxOpen).toBeLessThanOrEqual(2);
        const { length } = test.requests;
        await test.clock.advance(3_600_000);
        expect(test.requests).toHaveLength(length);
      }),
      { numRuns: 60 },
    );
  });
});
