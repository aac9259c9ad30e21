import { decode, encode, type DecodedPacket, type Packet } from 'dns-packet';
import fc from 'fast-check';
import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { DnsZone, parseAddressRange } from '@cloudless/network';
import { DnsServer, type DnsServerOptions } from './dns-server.js';
import type { Exchange } from './exchange.js';
import { isRebindingAddress } from './rebinding.js';
import { parseResolvers } from './resolvers.js';

const range = parseAddressRange('10.96.0.0/16');
const WEB = 'web.default.svc.cloudless.internal';
const DB = 'db.default.svc.cloudless.internal';

function aZone(replicas = 3): DnsZone {
  const zone = new DnsZone({ clusterDomain: 'cloudless.internal', range });
  const service = { namespace: 'default', clusterIp: '', headless: false, externalName: '' };
  const ports = [{ name: 'http', port: 80, protocol: 'tcp' as const }];
  zone.setService({ ...service, name: 'web', clusterIp: '10.96.0.20', ports });
  zone.setService({ ...service, name: 'db', headless: true, ports });
  zone.setService({ ...service, name: 'wiki', externalName: 'wiki.example.org', ports: [] });
  for (let slot = 0; slot < replicas; slot += 1) {
    zone.setEndpoint({
      id: `default/db/${slot}`,
      namespace: 'default',
      service: 'db',
      slot,
      ready: true,
      local: false,
      ports: [{ name: 'http', ip: `10.1.${slot >> 8}.${slot & 255}`, port: 8080 }],
    });
  }
  zone.markComplete();
  return zone;
}

const clock = new ManualClock();
function aServer(options: Partial<DnsServerOptions> = {}): DnsServer {
  const zone = aZone();
  return new DnsServer({
    zone: () => zone,
    range: () => range,
    resolvers: () => [{ address: '192.0.2.53', port: 53 }],
    isLocalClient: () => true,
    clock,
    log: silentLog,
    exchange: () => Promise.reject(new Error('no resolver in this test')),
    ...options,
  });
}

const question = (name: string, type = 'A', rest: Partial<Packet> = {}): Buffer =>
  encode({
    type: 'query',
    id: 4711,
    flags: 0x0100,
    questions: [{ name, type: type as 'A', class: 'IN' }],
    ...rest,
  });
const withEdns = (udpPayloadSize: number): Partial<Packet> =>
  ({ additionals: [{ type: 'OPT', name: '.', udpPayloadSize }] }) as unknown as Partial<Packet>;

interface AskOptions {
  readonly isLocal?: boolean;
  readonly byTcp?: boolean;
}
async function ask(
  server: DnsServer,
  message: Buffer,
  { isLocal = true, byTcp = false }: AskOptions = {},
): Promise<DecodedPacket & { rcode: string; bytes: number }> {
  const response = await server.answer(
    message,
    isLocal ? '127.0.0.1' : '198.51.100.7',
    isLocal,
    byTcp,
  );
  if (response === undefined) throw new Error('no response');
  return { ...decode(response), bytes: response.length } as never;
}
const shown = ({ answers = [] }: DecodedPacket): unknown[] =>
  answers.map((record) => ('data' in record ? record.data : record.type));

/** A resolver that answers each question with these records. */
const resolverOf =
  (answers: Packet['answers'], flags = 0x8180): Exchange =>
  (_resolver, message) =>
    Promise.resolve(
      encode({
        type: 'response',
        id: 1,
        flags,
        questions: decode(message).questions ?? [],
        answers: answers ?? [],
      }),
    );

describe('names of the cluster', () => {
  it('are answered with authority, the id and the spelling of the question', async () => {
    const response = await ask(aServer(), question('wEb.Default.SVC.cloudless.internal'));
    expect(response).toMatchObject({
      id: 4711,
      rcode: 'NOERROR',
      flag_aa: true,
      flag_rd: true,
      flag_ra: true,
      questions: [{ name: 'wEb.Default.SVC.cloudless.internal' }],
    });
    expect(shown(response)).toEqual(['10.96.0.20']);
  });

  it.each([
    ['nope.default.svc.cloudless.internal', 'A', 'NXDOMAIN', 'SOA'],
    [WEB, 'AAAA', 'NOERROR', 'SOA'],
    [WEB, 'TXT', 'NOERROR', 'SOA'],
  ])('without records: %s %s is %s with %s', async (name, type, code, authority) => {
    const response = await ask(aServer(), question(name, type));
    expect({ code: response.rcode, answers: shown(response) }).toEqual({ code, answers: [] });
    expect(response.authorities?.map((record) => record.type)).toEqual([authority]);
  });

  it.each([
    ['_http._tcp.' + WEB, 'SRV', [{ priority: 0, weight: 100, port: 80, target: WEB }]],
    ['20.0.96.10.in-addr.arpa', 'PTR', [WEB]],
    ['cloudless.internal', 'NS', ['dns.cloudless.internal']],
    [WEB, 'ANY', [{ cpu: 'RFC8482', os: '' }]],
  ])('have %s %s', async (name, type, expected) => {
    expect(shown(await ask(aServer(), question(name, type)))).toEqual(expected);
  });

  it('come from the cache until the zone changes', async () => {
    const zone = aZone();
    const server = aServer({ zone: () => zone });
    expect(shown(await ask(server, question(WEB)))).toEqual(['10.96.0.20']);
    expect(shown(await ask(server, question(WEB, 'A', { id: 1 })))).toEqual(['10.96.0.20']);
    zone.removeService('default', 'web');
    expect((await ask(server, question(WEB))).rcode).toBe('NXDOMAIN');
  });

  it('spread the addresses of a headless service over the first place', async () => {
    const server = aServer();
    const first = new Set<unknown>();
    for (let count = 0; count < 6; count += 1) first.add(shown(await ask(server, question(DB)))[0]);
    expect(first.size).toBe(3);
  });

  it.each([
    { name: '512 bytes without EDNS', rest: {}, bytes: 512 },
    { name: '1232 bytes with EDNS', rest: withEdns(4_096), bytes: 1_232 },
    { name: '512 bytes with EDNS that offers less', rest: withEdns(100), bytes: 512 },
  ])('are truncated above $name, and whole by TCP', async ({ rest, bytes }) => {
    const server = aServer({ zone: () => big });
    const big = aZone(200);
    const short = await ask(server, question(DB, 'A', rest));
    expect(short).toMatchObject({ flag_tc: true, answers: [] });
    expect(short.bytes).toBeLessThanOrEqual(bytes);
    expect(shown(await ask(server, question(DB, 'A', rest), { byTcp: true }))).toHaveLength(200);
    const small = await ask(aServer(), question(DB, 'A', rest));
    expect({ truncated: small.flag_tc, answers: small.answers?.length }).toEqual({
      truncated: false,
      answers: 3,
    });
    expect(small.additionals?.length).toBe(rest === undefined || !('additionals' in rest) ? 0 : 1);
  });

  it('are SERVFAIL before the settings of the cluster are known', async () => {
    const server = aServer({ zone: () => undefined });
    expect((await ask(server, question(WEB))).rcode).toBe('SERVFAIL');
  });
});

describe('messages that are no simple question', () => {
  const patch = (message: Buffer, at: number, value: number): Buffer => {
    const changed = Buffer.from(message);
    changed.writeUInt16BE(value, at);
    return changed;
  };
  it.each([
    ['of 11 bytes', Buffer.alloc(11), undefined],
    ['that are responses', patch(question(WEB), 2, 0x8180), undefined],
    ['with opcode UPDATE', patch(question(WEB), 2, 0x2800), 'NOTIMP'],
    ['with two questions', patch(question(WEB), 4, 2), 'FORMERR'],
    ['without question', patch(question(WEB), 4, 0), 'FORMERR'],
    ['with answers', patch(question(WEB), 6, 1), 'FORMERR'],
    ['with a compressed name', patch(question(WEB), 12, 0xc00c), 'FORMERR'],
    ['that end in the name', question(WEB).subarray(0, 20), 'FORMERR'],
    ['with class CHAOS', patch(question(WEB), question(WEB).length - 2, 3), 'REFUSED'],
    ['with a transfer', question(WEB, 'AXFR'), 'REFUSED'],
    ['with a torn OPT record', patch(question(WEB), 10, 1), 'FORMERR'],
  ])('%s: %s', async (_title, message, code) => {
    const response = await aServer().answer(message, '127.0.0.1', true, false);
    const decoded = response === undefined ? undefined : decode(response);
    expect((decoded as { rcode?: string } | undefined)?.rcode).toBe(code);
    expect(response?.length ?? 0).toBeLessThanOrEqual(message.length);
  });

  it('with a later EDNS version: BADVERS', async () => {
    const message = question(WEB, 'A', withEdns(1_232));
    message[message.length - 11 + 6] = 1;
    const response = (await aServer().answer(message, '127.0.0.1', true, false)) as Buffer;
    // Lower bits of the code in the header, upper bits in the OPT record.
    expect((response[3] ?? 0) & 15).toBe(0);
    expect(response[response.length - 11 + 5]).toBe(1);
  });

  it('never make the server throw or answer with more than twice their size by UDP', async () => {
    const server = aServer({ isLocalClient: () => false });
    const mangled = fc
      .tuple(
        fc.constantFrom(question(WEB), question(DB), question(WEB, 'ANY', withEdns(65_535))),
        fc.array(fc.tuple(fc.nat(80), fc.nat(255)), { maxLength: 6 }),
        fc.nat(80),
      )
      .map(([message, changes, cut]) => {
        const copy = Buffer.from(
          message.subarray(0, Math.max(0, message.length - (cut > 60 ? cut : 0))),
        );
        for (const [at, value] of changes) if (at < copy.length) copy[at] = value;
        return copy;
      });
    const random = fc.uint8Array({ maxLength: 80 }).map((bytes) => Buffer.from(bytes));
    await fc.assert(
      fc.asyncProperty(fc.oneof(mangled, random), async (message) => {
        const response = await server.answer(message, '198.51.100.7', false, false);
        if (response === undefined) return;
        expect(() => decode(response)).not.toThrow();
        expect(response.length).toBeLessThanOrEqual(Math.max(120, message.length * 2 + 60));
      }),
      { numRuns: 400 },
    );
  });

  it('with a dot inside a label are another name than with two labels', async () => {
    const message = question(WEB);
    message[12] = 11; // web.default as one label
    expect((await ask(aServer(), message)).rcode).toBe('NXDOMAIN');
    message[16] = 0x2e;
    expect((await ask(aServer(), message)).rcode).toBe('NXDOMAIN');
  });
});

describe('names outside the cluster', () => {
  const example = [{ type: 'A' as const, name: 'example.org', ttl: 60, data: '192.0.2.1' }];

  it('are forwarded for local clients', async () => {
    const server = aServer({ exchange: resolverOf(example) });
    const response = await ask(server, question('ExAmple.org'));
    expect(response).toMatchObject({ id: 4711, flag_aa: false, flag_ra: true });
    expect(response.questions).toMatchObject([{ name: 'ExAmple.org' }]);
    expect(shown(response)).toEqual(['192.0.2.1']);
  });

  it('are refused for others, without a request to a resolver', async () => {
    const exchange = resolverOf(example);
    let asked = 0;
    const server = aServer({
      exchange: (...args) => {
        asked += 1;
        return exchange(...args);
      },
    });
    expect((await ask(server, question('example.org'), { isLocal: false })).rcode).toBe('REFUSED');
    const alias = question('wiki.default.svc.cloudless.internal');
    expect(shown(await ask(server, alias, { isLocal: false }))).toEqual(['wiki.example.org']);
    expect(asked).toBe(0);
  });

  it('of an alias are resolved for the client', async () => {
    const data = [{ type: 'A' as const, name: 'wiki.example.org', ttl: 60, data: '192.0.2.9' }];
    const server = aServer({ exchange: resolverOf(data) });
    const response = await ask(server, question('wiki.default.svc.cloudless.internal'));
    expect(shown(response)).toEqual(['wiki.example.org', '192.0.2.9']);
  });

  it('of an alias are resolved for a local client after a foreign client has asked', async () => {
    const data = [{ type: 'A' as const, name: 'wiki.example.org', ttl: 60, data: '192.0.2.9' }];
    const server = aServer({ exchange: resolverOf(data) });
    const alias = question('wiki.default.svc.cloudless.internal');
    for (const isLocal of [false, true, false, true])
      expect(shown(await ask(server, alias, { isLocal }))).toEqual(
        isLocal ? ['wiki.example.org', '192.0.2.9'] : ['wiki.example.org'],
      );
  });

  it.each([
    ['no resolver', { resolvers: () => [] }, 'SERVFAIL'],
    ['a resolver without answer', {}, 'SERVFAIL'],
    ['a resolver that refuses', { exchange: resolverOf([], 0x8185) }, 'REFUSED'],
    ['a damaged answer', { exchange: () => Promise.resolve(Buffer.alloc(20, 0xff)) }, 'SERVFAIL'],
  ])('with %s end as an error', async (_title, options: Partial<DnsServerOptions>, code) => {
    expect((await ask(aServer(options), question('example.org'))).rcode).toBe(code);
  });

  it.each(['10.96.0.20', '127.0.0.1', '169.254.169.254', '0.0.0.0'])(
    'that lead to %s are refused (rebinding)',
    async (data) => {
      const server = aServer({
        exchange: resolverOf([{ type: 'A', name: 'evil.example', ttl: 1, data }]),
      });
      expect((await ask(server, question('evil.example'))).rcode).toBe('REFUSED');
      expect((await ask(server, question('wiki.default.svc.cloudless.internal'))).rcode).toBe(
        'SERVFAIL',
      );
    },
  );

  it('without dots, and localhost, never leave the machine', async () => {
    const server = aServer({ exchange: resolverOf(example) });
    expect((await ask(server, question('printer'))).rcode).toBe('NXDOMAIN');
    expect(shown(await ask(server, question('a.localhost')))).toEqual(['127.0.0.1']);
    expect(server.counts.forwarded).toBe(0);
  });

  it('that come back from the resolver share one request and end with it', async () => {
    let server: DnsServer | undefined;
    let asked = 0;
    let giveUp = (): void => undefined;
    const loop: Exchange = (_resolver, message) => {
      asked += 1;
      void server?.answer(Buffer.from(message), '127.0.0.1', true, false);
      return new Promise((_resolve, reject) => {
        giveUp = () => reject(new Error('too late'));
      });
    };
    server = aServer({ exchange: loop });
    const waiting = ask(server, question('loop.example', 'A', withEdns(1_232)));
    while (asked === 0) await Promise.resolve();
    giveUp();
    expect((await waiting).rcode).toBe('SERVFAIL');
    expect(asked).toBe(1);
  });

  it('wait in bounded numbers, for each client and in all', async () => {
    const server = aServer({
      exchange: () => new Promise(() => undefined),
      forwardLimits: { maxQuestions: 5, maxPerClient: 3 },
    });
    const send = (index: number, client: string): Promise<Buffer | undefined> =>
      Promise.resolve(server.answer(question(`n${index}.example`), client, true, false));
    for (let index = 0; index < 3; index += 1) void send(index, '127.0.0.1');
    const busy = [await send(9, '127.0.0.1')];
    void send(3, '127.0.0.2');
    void send(4, '127.0.0.2');
    busy.push(await send(5, '127.0.0.3'));
    expect(busy.map((each) => (decode(each as Buffer) as { rcode?: string }).rcode)).toEqual([
      'SERVFAIL',
      'SERVFAIL',
    ]);
  });
});

describe('isRebindingAddress', () => {
  it.each([
    ['10.96.3.4', true],
    ['127.8.8.8', true],
    ['0.0.0.0', true],
    ['169.254.169.254', true],
    ['::', true],
    ['::1', true],
    ['::ffff:127.0.0.1', true],
    ['::ffff:7f00:1', true],
    ['::ffff:10.96.0.9', true],
    ['64:ff9b::a9fe:a9fe', true],
    ['fe80::1', true],
    ['febf::1', true],
    ['10.0.0.1', false],
    ['192.168.1.1', false],
    ['192.0.2.1', false],
    ['::ffff:192.0.2.1', false],
    ['2001:db8::1', false],
    ['fd00::1', false],
  ])('%s: %s', (address, expected) => {
    expect(isRebindingAddress(address, range)).toBe(expected);
  });
});

describe('parseResolvers', () => {
  it('takes up to three name servers and leaves out virtual addresses, among them its own', () => {
    const text = [
      '# made by hand',
      'search example.org',
      'nameserver 10.96.0.10',
      'nameserver 192.0.2.1',
      ' nameserver 2001:db8::53',
      'nameserver fe80::1%eth0',
      'nameserver not-an-address',
      'nameserver 192.0.2.9',
    ].join('\n');
    expect(parseResolvers(text, range).map(({ address }) => address)).toEqual([
      '192.0.2.1',
      '2001:db8::53',
      'fe80::1%eth0',
    ]);
  });
});
