import { dnsAddressOf, isInRange, type AddressRange } from '../addresses/address-range.js';
import { parseReverseName, reverseNameOf } from './reverse-names.js';
import { serviceDnsName } from './service-names.js';
import { ZoneData, readyTargets, targetsOf, type ZoneEntry } from './zone-data.js';
import {
  NEGATIVE_TTL_SECONDS,
  RECORD_TTL_SECONDS,
  addressRecord,
  emptyAnswer,
  serviceRecord,
  type QueryType,
  type ZoneAnswer,
  type ZoneEndpoint,
  type ZoneRecord,
  type ZoneService,
} from './zone-records.js';

/** Settings of a zone. */
export interface DnsZoneSettings {
  /** Domain below which services have names, such as `cloudless.internal`. */
  readonly clusterDomain: string;
  /** Range of virtual addresses: the zone answers for its reverse names. */
  readonly range: AddressRange;
}

/**
 * The names of all services and their answers. Authoritative for the cluster domain and for the
 * reverse names of the virtual addresses. NXDOMAIN only for names that do not exist; NOERROR without
 * records for names without records of the type, such as a headless service without ready
 * endpoints; SERVFAIL only until `markComplete`, for names that are not known yet.
 */
export class DnsZone {
  private readonly data = new ZoneData();
  private readonly domain: string;
  private isComplete = false;

  constructor(private readonly settings: DnsZoneSettings) {
    this.domain = settings.clusterDomain.toLowerCase().replace(/\.$/, '');
  }

  /** Grows when an answer may have changed. */
  get revision(): number {
    return this.data.revision + (this.isComplete ? 1 : 0);
  }

  /** Adds or changes a service. */
  setService(service: ZoneService): void {
    this.data.setService(service);
  }

  /** Removes a service. Its endpoints are removed on their own. */
  removeService(namespace: string, name: string): void {
    this.data.removeService(namespace, name);
  }

  /** Adds or changes an endpoint, which may be known before its service. */
  setEndpoint(endpoint: ZoneEndpoint): void {
    this.data.setEndpoint(endpoint);
  }

  /** Removes an endpoint. */
  removeEndpoint(id: string): void {
    this.data.removeEndpoint(id);
  }

  /** Notes that all services have been received: names that are not known do not exist. */
  markComplete(): void {
    this.isComplete = true;
  }

  /**
   * Answers a question.
   * @param name - In lower case, without the last dot.
   * @returns Undefined: the name is outside the zone, to be forwarded.
   */
  lookup(name: string, type: QueryType): ZoneAnswer | undefined {
    if (name === this.domain || name.endsWith(`.${this.domain}`)) {
      const prefix = name.slice(0, -this.domain.length).replace(/\.$/, '');
      const labels = prefix === '' ? [] : prefix.split('.').reverse();
      return this.finish(this.answerOf(name, labels), type, this.authority(this.domain));
    }
    return this.lookupReverse(name, type);
  }

  /** Returns all records of a name, or undefined when the name does not exist. */
  private answerOf(name: string, labels: readonly string[]): Found | undefined {
    const [top, namespace, service, ...below] = labels;
    if (top === undefined) return { records: [this.authority(this.domain), this.nameServer()] };
    if (top === DNS_LABEL && namespace === undefined) {
      return { records: [addressRecord(name, dnsAddressOf(this.settings.range))] };
    }
    if (top !== 'svc') return undefined;
    if (namespace === undefined) return { records: [] };
    if (service === undefined)
      return this.data.hasNamespace(namespace) ? { records: [] } : undefined;
    const entry = this.data.find(namespace, service);
    if (entry === undefined) return undefined;
    const serviceName = serviceDnsName(namespace, service, this.domain);
    return below.length === 0
      ? this.serviceAnswer(entry, serviceName)
      : this.answerBelow(entry, serviceName, below);
  }

  private serviceAnswer(entry: FoundEntry, name: string): Found {
    const { externalName, headless, clusterIp } = entry.service;
    if (externalName !== '') return { records: [aliasRecord(name, externalName)] };
    if (!headless) return { records: clusterIp === '' ? [] : [addressRecord(name, clusterIp)] };
    const addresses = new Set(readyTargets(entry).map(({ address }) => address));
    return { records: [...addresses].map((address) => addressRecord(name, address)) };
  }

  /** Names below a service: `<slot>`, `_tcp` and `_<port name>._tcp`. */
  private answerBelow(
    entry: FoundEntry,
    serviceName: string,
    [first = '', portLabel, ...rest]: readonly string[],
  ): Found | undefined {
    const { ports, headless } = entry.service;
    const protocol = first === '_tcp' ? 'tcp' : first === '_udp' ? 'udp' : undefined;
    if (protocol !== undefined) {
      const ofProtocol = ports.filter((port) => port.protocol === protocol);
      if (ofProtocol.length === 0 || rest.length > 0) return undefined;
      if (portLabel === undefined) return { records: [] };
      const port = ofProtocol.find(({ name }) => name !== '' && `_${name}` === portLabel);
      const name = `${portLabel}.${first}.${serviceName}`;
      return port === undefined ? undefined : portAnswer(entry, name, serviceName, port);
    }
    if (!headless || portLabel !== undefined) return undefined;
    const targets = targetsOf(entry).filter(({ label }) => label === first);
    if (targets.length === 0) return undefined;
    const ready = targets.filter(({ endpoint }) => endpoint.ready);
    const addresses = new Set(ready.map(({ address }) => address));
    return {
      records: [...addresses].map((address) => addressRecord(`${first}.${serviceName}`, address)),
    };
  }

  private lookupReverse(name: string, type: QueryType): ZoneAnswer | undefined {
    const reverse = parseReverseName(name);
    if (reverse === undefined) return undefined;
    const { range } = this.settings;
    if (reverse.kind === 'prefix') {
      const inside = prefixIsInside(range, reverse.octets);
      if (!inside) return undefined;
      return this.finish({ records: [] }, type, this.authority(this.reverseApex(reverse.octets)));
    }
    const names = this.namesOf(reverse.address);
    const found =
      names.length === 0 ? undefined : { records: names.map((to) => pointer(name, to)) };
    if (!isInRange(range, reverse.address)) {
      // An endpoint of a headless service outside the range; other addresses are not ours.
      return found === undefined ? undefined : this.finish(found, type, undefined);
    }
    const octets = reverse.address.split('.').map(Number);
    return this.finish(found, type, this.authority(this.reverseApex(octets)));
  }

  private namesOf(address: string): readonly string[] {
    if (address === dnsAddressOf(this.settings.range)) return [`${DNS_LABEL}.${this.domain}`];
    const service = this.data.findByClusterIp(address);
    if (service !== undefined) {
      return [serviceDnsName(service.namespace, service.name, this.domain)];
    }
    return this.data
      .targetsAt(address)
      .map(({ label, endpoint }) =>
        [label, serviceDnsName(endpoint.namespace, endpoint.service, this.domain)].join('.'),
      );
  }

  /** The reverse zone of an address: whole octets, at least as long as the prefix of the range. */
  private reverseApex(octets: readonly number[]): string {
    const prefixLength = 32 - Math.log2(this.settings.range.size);
    return reverseNameOf(octets.slice(0, Math.ceil(prefixLength / 8)));
  }

  private finish(
    found: Found | undefined,
    type: QueryType,
    authority: ZoneRecord | undefined,
  ): ZoneAnswer {
    const authorities = authority === undefined ? [] : [authority];
    if (found === undefined) {
      return emptyAnswer(
        this.isComplete ? 'NXDOMAIN' : 'SERVFAIL',
        this.isComplete ? authorities : [],
      );
    }
    const { records, additionals = [] } = found;
    const [first] = records;
    if (first?.type === 'CNAME') {
      const alias = type === 'CNAME' ? undefined : first.target;
      return { code: 'NOERROR', answers: [first], authorities: [], additionals: [], alias };
    }
    if (type === 'ANY' && first !== undefined) {
      return { ...emptyAnswer('NOERROR'), answers: [minimalAnyRecord(first.name)] };
    }
    const answers = records.filter((record) => record.type === type);
    if (answers.length === 0) return emptyAnswer('NOERROR', authorities);
    return { code: 'NOERROR', answers, authorities: [], additionals, alias: undefined };
  }

  private authority(name: string): ZoneRecord {
    return {
      name,
      ttlSeconds: NEGATIVE_TTL_SECONDS,
      type: 'SOA',
      primary: `${DNS_LABEL}.${this.domain}`,
      mailbox: `hostmaster.${this.domain}`,
      serial: 1,
      refreshSeconds: 7_200,
      retrySeconds: 1_800,
      expireSeconds: 86_400,
      negativeTtlSeconds: NEGATIVE_TTL_SECONDS,
    };
  }

  private nameServer(): ZoneRecord {
    return {
      name: this.domain,
      ttlSeconds: RECORD_TTL_SECONDS,
      type: 'NS',
      target: `${DNS_LABEL}.${this.domain}`,
    };
  }
}

/** Records of a name that exists; none is no error. */
interface Found {
  readonly records: readonly ZoneRecord[];
  readonly additionals?: readonly ZoneRecord[];
}

type FoundEntry = ZoneEntry & { service: ZoneService };

/** Label of the name server below the cluster domain. */
const DNS_LABEL = 'dns';

function portAnswer(
  entry: FoundEntry,
  name: string,
  serviceName: string,
  port: ZoneService['ports'][number],
): Found {
  const { headless, clusterIp } = entry.service;
  if (!headless) {
    if (clusterIp === '') return { records: [] };
    return {
      records: [serviceRecord(name, port.port, serviceName)],
      additionals: [addressRecord(serviceName, clusterIp)],
    };
  }
  const records = new Map<string, ZoneRecord>();
  const additionals: ZoneRecord[] = [];
  for (const { label, address, endpoint } of readyTargets(entry)) {
    const target = `${label}.${serviceName}`;
    const ports = endpoint.ports.filter((each) => each.name === port.name);
    if (ports.length === 0) continue;
    for (const each of ports) {
      records.set(`${target}:${each.port}`, serviceRecord(name, each.port, target));
    }
    additionals.push(addressRecord(target, address));
  }
  return { records: [...records.values()], additionals };
}

function aliasRecord(name: string, target: string): ZoneRecord {
  return {
    name,
    ttlSeconds: RECORD_TTL_SECONDS,
    type: 'CNAME',
    target: target.toLowerCase().replace(/\.$/, ''),
  };
}

function pointer(name: string, target: string): ZoneRecord {
  return { name, ttlSeconds: RECORD_TTL_SECONDS, type: 'PTR', target };
}

/** Answer to ANY: one small record. @see RFC 8482, section 4.2 */
function minimalAnyRecord(name: string): ZoneRecord {
  return { name, ttlSeconds: RECORD_TTL_SECONDS, type: 'HINFO', cpu: 'RFC8482', os: '' };
}

function prefixIsInside(range: AddressRange, octets: readonly number[]): boolean {
  const size = 256 ** (4 - octets.length);
  const first = octets.reduce((number, octet) => number * 256 + octet, 0) * size;
  return first >= range.first && first + size <= range.first + range.size;
}
