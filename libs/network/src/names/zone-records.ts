/** Lifetime of records in caches, seconds. */
export const RECORD_TTL_SECONDS = 5;
/** Lifetime of "no such name" and "no such record" in caches, seconds. */
export const NEGATIVE_TTL_SECONDS = 1;

/** Record types with answers of their own. OTHER: any further type, which no name has. */
export type QueryType = 'A' | 'AAAA' | 'ANY' | 'CNAME' | 'NS' | 'PTR' | 'SOA' | 'SRV' | 'OTHER';

/** A DNS record. Names are in lower case and without the last dot. */
export type ZoneRecord = { readonly name: string; readonly ttlSeconds: number } & (
  | { readonly type: 'A' | 'AAAA'; readonly address: string }
  | { readonly type: 'CNAME' | 'NS' | 'PTR'; readonly target: string }
  | {
      readonly type: 'SRV';
      readonly priority: number;
      readonly weight: number;
      readonly port: number;
      readonly target: string;
    }
  | {
      readonly type: 'SOA';
      readonly primary: string;
      readonly mailbox: string;
      readonly serial: number;
      readonly refreshSeconds: number;
      readonly retrySeconds: number;
      readonly expireSeconds: number;
      readonly negativeTtlSeconds: number;
    }
  | { readonly type: 'HINFO'; readonly cpu: string; readonly os: string }
);

/** Answer of the zone to one question. */
export interface ZoneAnswer {
  /** SERVFAIL: no data has arrived since the start. */
  readonly code: 'NOERROR' | 'NXDOMAIN' | 'SERVFAIL';
  readonly answers: readonly ZoneRecord[];
  readonly authorities: readonly ZoneRecord[];
  readonly additionals: readonly ZoneRecord[];
  /** The name outside the cluster that an answer leads to, to be resolved for the client. */
  readonly alias: string | undefined;
}

/** A service as the zone needs it. */
export interface ZoneService {
  readonly namespace: string;
  readonly name: string;
  /** The virtual address. Empty: none. */
  readonly clusterIp: string;
  readonly headless: boolean;
  /** DNS name outside the cluster. Empty: none. */
  readonly externalName: string;
  readonly ports: readonly {
    readonly name: string;
    readonly port: number;
    readonly protocol: 'tcp' | 'udp';
  }[];
}

/** An endpoint as the zone needs it. */
export interface ZoneEndpoint {
  /** Unique among all endpoints. */
  readonly id: string;
  readonly namespace: string;
  readonly service: string;
  /** Slot of the replica, its name in a headless service. Undefined outside the cluster. */
  readonly slot: number | undefined;
  readonly ready: boolean;
  /** True when the endpoint runs on this machine: only then its loopback addresses are answered. */
  readonly local: boolean;
  readonly ports: readonly { readonly name: string; readonly ip: string; readonly port: number }[];
}

/** Returns an answer without records. */
export function emptyAnswer(
  code: ZoneAnswer['code'],
  authorities: readonly ZoneRecord[] = [],
): ZoneAnswer {
  return { code, answers: [], authorities, additionals: [], alias: undefined };
}

/** Returns an A or AAAA record. */
export function addressRecord(name: string, address: string): ZoneRecord {
  const type = address.includes(':') ? 'AAAA' : 'A';
  return { name, ttlSeconds: RECORD_TTL_SECONDS, type, address };
}

/** Returns a SRV record. All targets are equal: the proxies and clients balance. */
export function serviceRecord(name: string, port: number, target: string): ZoneRecord {
  return {
    name,
    ttlSeconds: RECORD_TTL_SECONDS,
    type: 'SRV',
    priority: 0,
    weight: 100,
    port,
    target,
  };
}
