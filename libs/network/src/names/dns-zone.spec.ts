import fc from 'fast-check';
import { parseAddressRange } from '../addresses/address-range.js';
import { aZoneEndpoint, aZoneService } from '../testing/builders.js';
import { DnsZone } from './dns-zone.js';
import { searchDomains } from './service-names.js';
import type { QueryType, ZoneAnswer, ZoneRecord } from './zone-records.js';

const DOMAIN = 'cloudless.internal';
const WEB = `web.default.svc.${DOMAIN}`;
const DB = `db.shop.svc.${DOMAIN}`;
const headless = aZoneService({
  namespace: 'shop',
  name: 'db',
  clusterIp: '',
  headless: true,
  ports: [
    { name: 'sql', port: 5432, protocol: 'tcp' },
    { name: 'gossip', port: 7946, protocol: 'udp' },
  ],
});
const member = (
  slot: number | undefined,
  ip: string,
  overrides = {},
): ReturnType<typeof aZoneEndpoint> =>
  aZoneEndpoint({
    id: `shop/db/${ip}`,
    namespace: 'shop',
    service: 'db',
    slot,
    ports: [{ name: 'sql', ip, port: 15432 }],
    ...overrides,
  });

function aZone(options: { complete?: boolean } = {}): DnsZone {
  const zone = new DnsZone({ clusterDomain: DOMAIN, range: parseAddressRange('10.96.0.0/16') });
  zone.setService(aZoneService());
  zone.setService(
    aZoneService({ name: 'wiki', clusterIp: '', externalName: 'Wiki.Example.org.', ports: [] }),
  );
  zone.setService(headless);
  zone.setEndpoint(member(0, '10.1.0.1'));
  zone.setEndpoint(member(1, '10.1.0.2'));
  zone.setEndpoint(member(2, '10.1.0.3', { ready: false }));
  zone.setEndpoint(member(undefined, 'fd00::5'));
  if (options.complete !== false) zone.markComplete();
  return zone;
}

const show = (record: ZoneRecord): string => {
  if (record.type === 'A' || record.type === 'AAAA') return `${record.type} ${record.address}`;
  if (record.type === 'SRV') return `SRV ${record.port} ${record.target}`;
  return 'target' in record ? `${record.type} ${record.target}` : record.type;
};
const answerOf = (zone: DnsZone, name: string, type: QueryType): string => {
  const answer = zone.lookup(name, type);
  if (answer === undefined) return 'outside';
  return [answer.code, ...answer.answers.map(show)].join(' ');
};

describe('DnsZone', () => {
  it.each<[string, QueryType, string]>([
    [WEB, 'A', 'NOERROR A 10.96.0.20'],
    [WEB, 'AAAA', 'NOERROR'],
    [WEB, 'OTHER', 'NOERROR'],
    [WEB, 'ANY', 'NOERROR HINFO'],
    [`_http._tcp.${WEB}`, 'SRV', `NOERROR SRV 80 ${WEB}`],
    [`_http._tcp.${WEB}`, 'A', 'NOERROR'],
    [`_tcp.${WEB}`, 'SRV', 'NOERROR'],
    [`_udp.${WEB}`, 'SRV', 'NXDOMAIN'],
    [`_http._udp.${WEB}`, 'SRV', 'NXDOMAIN'],
    [`_https._tcp.${WEB}`, 'SRV', 'NXDOMAIN'],
    [`x._http._tcp.${WEB}`, 'SRV', 'NXDOMAIN'],
    [`0.${WEB}`, 'A', 'NXDOMAIN'],
    [`nope.default.svc.${DOMAIN}`, 'A', 'NXDOMAIN'],
    [`web.nope.svc.${DOMAIN}`, 'A', 'NXDOMAIN'],
    [`nope.svc.${DOMAIN}`, 'A', 'NXDOMAIN'],
    [`default.svc.${DOMAIN}`, 'A', 'NOERROR'],
    [`svc.${DOMAIN}`, 'A', 'NOERROR'],
    [`pod.${DOMAIN}`, 'A', 'NXDOMAIN'],
    [DOMAIN, 'A', 'NOERROR'],
    [DOMAIN, 'SOA', 'NOERROR SOA'],
    [DOMAIN, 'NS', `NOERROR NS dns.${DOMAIN}`],
    [`dns.${DOMAIN}`, 'A', 'NOERROR A 10.96.0.10'],
    [`wiki.default.svc.${DOMAIN}`, 'A', 'NOERROR CNAME wiki.example.org'],
    [`wiki.default.svc.${DOMAIN}`, 'CNAME', 'NOERROR CNAME wiki.example.org'],
    [DB, 'A', 'NOERROR A 10.1.0.1 A 10.1.0.2'],
    [DB, 'AAAA', 'NOERROR AAAA fd00::5'],
    [`1.${DB}`, 'A', 'NOERROR A 10.1.0.2'],
    [`2.${DB}`, 'A', 'NOERROR'],
    [`3.${DB}`, 'A', 'NXDOMAIN'],
    [`fd00--5.${DB}`, 'AAAA', 'NOERROR AAAA fd00::5'],
    [
      `_sql._tcp.${DB}`,
      'SRV',
      `NOERROR SRV 15432 0.${DB} SRV 15432 1.${DB} SRV 15432 fd00--5.${DB}`,
    ],
    [`_gossip._udp.${DB}`, 'SRV', 'NOERROR'],
    ['20.0.96.10.in-addr.arpa', 'PTR', `NOERROR PTR ${WEB}`],
    ['20.0.96.10.in-addr.arpa', 'A', 'NOERROR'],
    ['10.0.96.10.in-addr.arpa', 'PTR', `NOERROR PTR dns.${DOMAIN}`],
    ['21.0.96.10.in-addr.arpa', 'PTR', 'NXDOMAIN'],
    ['0.96.10.in-addr.arpa', 'PTR', 'NOERROR'],
    ['1.0.1.10.in-addr.arpa', 'PTR', `NOERROR PTR 0.${DB}`],
    ['3.0.1.10.in-addr.arpa', 'PTR', 'outside'],
    ['10.in-addr.arpa', 'PTR', 'outside'],
    ['x.0.96.10.in-addr.arpa', 'PTR', 'outside'],
    ['example.org', 'A', 'outside'],
    [`evil${DOMAIN}`, 'A', 'outside'],
    [`${DOMAIN}.example.org`, 'A', 'outside'],
    ['', 'A', 'outside'],
  ])('answers %s %s with: %s', (name, type, expected) => {
    expect(answerOf(aZone(), name, type)).toBe(expected);
  });

  it.each([
    ['web', 'default', 'NOERROR A 10.96.0.20'],
    ['web.default', 'default', 'NOERROR A 10.96.0.20'],
    ['web.default.svc', 'shop', 'NOERROR A 10.96.0.20'],
    ['db', 'shop', 'NOERROR A 10.1.0.1 A 10.1.0.2'],
    ['db', 'default', 'NXDOMAIN'],
    ['example.org', 'default', 'NXDOMAIN'],
    // Also a namespace and a service of one name do not hide each other.
    ['shop.shop', 'shop', 'NXDOMAIN'],
  ])('with search domains, %s from namespace %s gives: %s', (name, namespace, expected) => {
    const zone = aZone();
    const answers = searchDomains(namespace, DOMAIN).map((domain) =>
      answerOf(zone, `${name}.${domain}`, 'A'),
    );
    // A resolver stops at the first name that exists: that one must be the wanted one.
    expect(answers.find((answer) => answer !== 'NXDOMAIN') ?? 'NXDOMAIN').toBe(expected);
  });

  it('answers SERVFAIL for unknown names until all services have arrived, and known ones at once', () => {
    const zone = aZone({ complete: false });
    expect(answerOf(zone, WEB, 'A')).toBe('NOERROR A 10.96.0.20');
    expect(answerOf(zone, `late.default.svc.${DOMAIN}`, 'A')).toBe('SERVFAIL');
    expect(answerOf(zone, '21.0.96.10.in-addr.arpa', 'PTR')).toBe('SERVFAIL');
    zone.markComplete();
    expect(answerOf(zone, `late.default.svc.${DOMAIN}`, 'A')).toBe('NXDOMAIN');
  });

  it('lets answers live 5 s, and 1 s when there is nothing', () => {
    const zone = aZone();
    const ttls = (answer: ZoneAnswer | undefined): number[] =>
      [...(answer?.answers ?? []), ...(answer?.authorities ?? [])].map((each) => each.ttlSeconds);
    expect(ttls(zone.lookup(WEB, 'A'))).toEqual([5]);
    expect(ttls(zone.lookup(WEB, 'AAAA'))).toEqual([1]);
    expect(zone.lookup(`no.default.svc.${DOMAIN}`, 'A')?.authorities).toMatchObject([
      { name: DOMAIN, type: 'SOA', ttlSeconds: 1, negativeTtlSeconds: 1 },
    ]);
    expect(zone.lookup('21.0.96.10.in-addr.arpa', 'PTR')?.authorities).toMatchObject([
      { name: '96.10.in-addr.arpa', type: 'SOA' },
    ]);
  });

  it('adds the addresses of the targets to SRV answers', () => {
    const zone = aZone();
    expect(zone.lookup(`_http._tcp.${WEB}`, 'SRV')?.additionals.map(show)).toEqual([
      'A 10.96.0.20',
    ]);
    expect(zone.lookup(`_sql._tcp.${DB}`, 'SRV')?.additionals.map(show)).toEqual([
      'A 10.1.0.1',
      'A 10.1.0.2',
      'AAAA fd00::5',
    ]);
  });

  it('answers loopback addresses of endpoints of this machine only', () => {
    const zone = aZone();
    zone.setEndpoint(member(7, '127.0.0.1', { local: false }));
    expect(answerOf(zone, `7.${DB}`, 'A')).toBe('NXDOMAIN');
    zone.setEndpoint(member(7, '127.0.0.1', { local: true }));
    expect(answerOf(zone, `7.${DB}`, 'A')).toBe('NOERROR A 127.0.0.1');
  });

  it('grows its revision only when an answer may change', () => {
    const zone = aZone();
    const before = zone.revision;
    zone.setEndpoint(aZoneEndpoint());
    zone.removeEndpoint('default/web/a-1');
    expect(zone.revision).toBe(before);
    zone.setEndpoint(member(0, '10.1.0.9', { id: 'shop/db/10.1.0.1' }));
    expect(zone.revision).toBeGreaterThan(before);
  });

  it('equals a zone that is built from what remains, after any changes in any order', () => {
    const arbService = fc.record({
      name: fc.constantFrom('a', 'b'),
      ip: fc.integer({ min: 20, max: 22 }),
      headless: fc.boolean(),
    });
    const arbEndpoint = fc.record({
      id: fc.nat(3),
      service: fc.constantFrom('a', 'b'),
      slot: fc.nat(1),
      ready: fc.boolean(),
    });
    const arbChange = fc.oneof(
      arbService.map((set) => ({ kind: 'service' as const, ...set })),
      fc.constantFrom('a', 'b').map((name) => ({ kind: 'noService' as const, name })),
      arbEndpoint.map((set) => ({ kind: 'endpoint' as const, ...set })),
      fc.nat(3).map((id) => ({ kind: 'noEndpoint' as const, id })),
    );
    const empty = (): DnsZone => {
      const zone = new DnsZone({ clusterDomain: DOMAIN, range: parseAddressRange('10.96.0.0/16') });
      zone.markComplete();
      return zone;
    };
    fc.assert(
      fc.property(fc.array(arbChange, { maxLength: 30 }), (changes) => {
        const zone = empty();
        const services = new Map<string, ReturnType<typeof aZoneService>>();
        const members = new Map<string, ReturnType<typeof aZoneEndpoint>>();
        for (const change of changes) {
          if (change.kind === 'service') {
            const { name } = change;
            // The store never gives an address to two services.
            const clusterIp = change.headless ? '' : `10.96.${name === 'a' ? 1 : 2}.${change.ip}`;
            const service = aZoneService({ name, headless: change.headless, clusterIp });
            services.set(name, service);
            zone.setService(service);
          } else if (change.kind === 'noService') {
            services.delete(change.name);
            zone.removeService('default', change.name);
          } else if (change.kind === 'endpoint') {
            const { service, slot, ready } = change;
            const id = `e${change.id}`;
            const ports = [{ name: 'http', ip: `10.1.0.${change.id}`, port: 80 }];
            const endpoint = aZoneEndpoint({ id, service, slot, ready, ports });
            members.set(id, endpoint);
            zone.setEndpoint(endpoint);
          } else {
            members.delete(`e${change.id}`);
            zone.removeEndpoint(`e${change.id}`);
          }
        }
        const fresh = empty();
        for (const endpoint of members.values()) fresh.setEndpoint(endpoint);
        for (const service of services.values()) fresh.setService(service);
        const names = [
          ...['a', 'b'].flatMap((name) => [
            `${name}.default.svc.${DOMAIN}`,
            `0.${name}.default.svc.${DOMAIN}`,
          ]),
          ...['a', 'b'].map((name) => `_http._tcp.${name}.default.svc.${DOMAIN}`),
          ...[1, 2].flatMap((net) => [20, 21, 22].map((ip) => `${ip}.${net}.96.10.in-addr.arpa`)),
          ...[0, 1, 2, 3].map((ip) => `${ip}.0.1.10.in-addr.arpa`),
          `default.svc.${DOMAIN}`,
        ];
        for (const name of names) {
          for (const type of ['A', 'SRV', 'PTR'] as const) {
            expect(answerOf(zone, name, type)).toBe(answerOf(fresh, name, type));
          }
        }
      }),
    );
  });
});
