import {
  InvalidInputError,
  durationField,
  oneOfField,
  parseConfig,
  sizeField,
  switchField,
  textField,
  wholeNumberField,
  type ConfigFields,
  type ConfigLayer,
} from '@cloudless/base';
import { DEFAULT_RETENTION } from '@cloudless/controllers';
import { TRUST_DOMAIN_RULE, requireLoopback } from '@cloudless/identity';
import { parseAddressRange } from '@cloudless/network';
import { LOG_FORMATS, otlpEndpointField, type LogFormat } from '@cloudless/observability';
import type { ScoreWeights } from '@cloudless/scheduler';
import { DEFAULT_HISTORY_BYTES } from '@cloudless/state-store';
import { ETCD_PREFIX } from '@cloudless/state-store-etcd';
import {
  DEFAULT_ETCD_PREFIX,
  checkEtcdSettings,
  parseEtcdEndpoints,
  type EtcdSettings,
} from '@cloudless/state-store-etcd/settings';
import { isServerName } from './identity/server-names.js';

/** Complete, validated settings of a coordinator. */
export interface CoordinatorConfig extends EtcdSettings {
  /**
   * `on`: TLS and identities. `off`: plaintext on loopback, where every client may do everything.
   */
  readonly tls: 'on' | 'off';
  /** Address of the API; loopback only without TLS. */
  readonly host: string;
  /** Port of the API; 0 selects a free port. */
  readonly port: number;
  /** Names and addresses by which other machines reach this coordinator. */
  readonly advertise: readonly string[];
  /** Id of this coordinator, a DNS label. */
  readonly name: string;
  /** Trust domain of all SPIFFE IDs of the cluster. */
  readonly trustDomain: string;
  /** Directory of keys; undefined: `identity` in the data directory. */
  readonly identityDir: string | undefined;
  /** File of the key-encryption key of secrets; undefined: see `openSecretKeys`. */
  readonly secretsKeyFile: string | undefined;
  /** File of a passphrase in place of the key-encryption key. */
  readonly secretsPassphraseFile: string | undefined;
  /** File of the former key-encryption key, at the start that replaces the key. */
  readonly secretsPreviousKeyFile: string | undefined;
  /**
   * Writes a new admin credential at this start, and revokes the earlier credentials of its user.
   */
  readonly newAdminCredential: boolean;
  /** `on`: a new cluster begins with the default policies. No effect on a cluster that exists. */
  readonly defaultPolicies: 'on' | 'off';
  /** Lifetime of certificates of nodes, milliseconds. */
  readonly nodeCertificateLifetimeMs: number;
  /** Lifetime of certificates of users, milliseconds. */
  readonly userCertificateLifetimeMs: number;
  /** Lifetime of certificates of workloads, milliseconds. */
  readonly workloadCertificateLifetimeMs: number;
  /** Lifetime of the certificate of this coordinator, milliseconds. */
  readonly serverCertificateLifetimeMs: number;
  /** Address of /health, /ready and /metrics; loopback only without TLS. */
  readonly opsHost: string;
  /** Port of /health, /ready and /metrics; 0 selects a free port. */
  readonly opsPort: number;
  /**
   * `lmdb` stores data below `dataDir`, `etcd` in an etcd cluster that several coordinators share;
   * `memory` loses everything at exit.
   */
  readonly state: 'lmdb' | 'etcd' | 'memory';
  /** Directory of the store, with `state: 'lmdb'`. */
  readonly dataDir: string;
  /** Lease of a node, milliseconds: time without a PING after which the node is lost. */
  readonly leaseMs: number;
  /** Interval at which agents send PINGs, milliseconds; at most a third of the lease. */
  readonly pingMs: number;
  /**
   * Time within which an agent that left in good order may return before its node is lost,
   * milliseconds; 0: such a node is lost when its lease ends.
   */
  readonly leaveGraceMs: number;
  /**
   * Time after the last turn of an agent's main loop at which its node is lost although the agent
   * renews the lease, milliseconds; at least the lease. Undefined: 30 s, or a longer lease.
   */
  readonly hungAfterMs: number | undefined;
  /** Range of the virtual addresses of services; undefined: the stored one, or the default. */
  readonly serviceCidr: string | undefined;
  /** Domain below which services have names; undefined: the stored one, or the default. */
  readonly clusterDomain: string | undefined;
  readonly logLevel: 'error' | 'warn' | 'info' | 'debug';
  readonly logFormat: LogFormat;
  /** Base URL of an OTLP receiver of traces; undefined: no tracing. */
  readonly otlpEndpoint: string | undefined;
  /** Retention of audit records, milliseconds. */
  readonly auditRetentionMs: number;
  /** Retention of other events, milliseconds. */
  readonly eventRetentionMs: number;
  /** Limit of the bytes of audit records. */
  readonly auditBytes: number;
  /** Limit of the bytes of other events. */
  readonly eventBytes: number;
  /** Limit of the bytes of results kept for retries with a request id. */
  readonly requestBytes: number;
  /** Limit of the bytes of the change history in the data file. */
  readonly historyBytes: number;
  /** Web origins that may call the API, in addition to those on loopback; empty: none. */
  readonly allowedOrigins: readonly string[];
  /** Weights of the terms of the placement score; undefined: the defaults of the scheduler. */
  readonly weights: ScoreWeights | undefined;
}

const DAY_MS = 86_400_000;
/** Shortest lifetime of certificates: for tests, which see many renewals in a short time. */
const MIN_CERTIFICATE_MS = 5_000;
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
/** A path without a default. */
const pathField = { ...textField('', { pattern: /./, expected: 'a path' }), fallback: undefined };
/** Names of services below the domain stay within the 253 characters of a DNS name. */
const CLUSTER_DOMAIN =
  /^(?=.{1,100}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/;
const CLUSTER_DOMAIN_RULE =
  'a DNS name in lower case with at most 100 characters, such as cloudless.internal';
const TRUST_DOMAIN = /^[a-z0-9._-]{1,255}$/;
/** Smallest size limit: space for a few hundred records. */
const MIN_BYTES = 64 * 1024;
/**
 * Largest size limit, because audit records, events and stored responses are also held in memory.
 */
const MAX_BYTES = 1024 ** 3;

/** Default data directory, when neither a flag nor a settings file names one. */
export function defaultDataDir(env: Readonly<Record<string, string | undefined>>): string {
  const base =
    env['XDG_STATE_HOME'] ||
    (env['HOME'] === undefined ? undefined : `${env['HOME']}/.local/state`);
  return `${base ?? '.cloudless'}/cloudless/coordinator`;
}

/**
 * Merges the layers of settings and validates the result. A later layer overrides earlier ones.
 * @param dataDir - Default of the data directory.
 * @throws {@link InvalidInputError} with every unknown key and invalid value, or with the first
 *   setting that contradicts another one.
 */
export function parseCoordinatorConfig(
  layers: readonly ConfigLayer[],
  dataDir: string,
): CoordinatorConfig {
  const fields: ConfigFields<CoordinatorConfig> = {
    tls: oneOfField('on', ['on', 'off']),
    host: textField('127.0.0.1'),
    port: wholeNumberField(8080, 0, 65_535),
    advertise: { fallback: [], parse: parseServerNames },
    name: textField('coordinator', { pattern: LABEL, expected: 'a DNS label' }),
    trustDomain: textField('cloudless', { pattern: TRUST_DOMAIN, expected: TRUST_DOMAIN_RULE }),
    identityDir: pathField,
    secretsKeyFile: pathField,
    secretsPassphraseFile: pathField,
    secretsPreviousKeyFile: pathField,
    newAdminCredential: switchField(false),
    defaultPolicies: oneOfField('on', ['on', 'off']),
    nodeCertificateLifetimeMs: durationField(DAY_MS, MIN_CERTIFICATE_MS, 365 * DAY_MS),
    userCertificateLifetimeMs: durationField(7 * DAY_MS, MIN_CERTIFICATE_MS, 365 * DAY_MS),
    workloadCertificateLifetimeMs: durationField(DAY_MS, MIN_CERTIFICATE_MS, 365 * DAY_MS),
    serverCertificateLifetimeMs: durationField(30 * DAY_MS, MIN_CERTIFICATE_MS, 365 * DAY_MS),
    opsHost: textField('127.0.0.1'),
    opsPort: wholeNumberField(8081, 0, 65_535),
    state: oneOfField('lmdb', ['lmdb', 'etcd', 'memory']),
    etcdEndpoints: { fallback: [], parse: parseEtcdEndpoints },
    etcdCa: pathField,
    etcdCert: pathField,
    etcdKey: pathField,
    etcdUser: { ...textField('', { pattern: /./, expected: 'a user name' }), fallback: undefined },
    etcdPasswordFile: pathField,
    etcdPrefix: textField(DEFAULT_ETCD_PREFIX, {
      pattern: ETCD_PREFIX,
      expected: 'a prefix such as /cloudless, without / at the end',
    }),
    etcdInsecure: switchField(false),
    dataDir: textField(dataDir, { pattern: /./, expected: 'a path' }),
    leaseMs: durationField(3_000, 300, 600_000),
    pingMs: durationField(900, 50, 200_000),
    leaveGraceMs: durationField(60_000, 0, 86_400_000),
    hungAfterMs: { ...durationField(0, 300, 3_600_000), fallback: undefined },
    serviceCidr: { fallback: undefined, parse: parseServiceCidr },
    clusterDomain: {
      ...textField('', { pattern: CLUSTER_DOMAIN, expected: CLUSTER_DOMAIN_RULE }),
      fallback: undefined,
    },
    logLevel: oneOfField('info', ['error', 'warn', 'info', 'debug']),
    logFormat: oneOfField('auto', LOG_FORMATS),
    otlpEndpoint: otlpEndpointField,
    auditRetentionMs: durationField(DEFAULT_RETENTION.auditMs, 1_000, 3_650 * DAY_MS),
    eventRetentionMs: durationField(DEFAULT_RETENTION.eventMs, 1_000, 3_650 * DAY_MS),
    auditBytes: sizeField(DEFAULT_RETENTION.auditBytes, MIN_BYTES, MAX_BYTES),
    eventBytes: sizeField(DEFAULT_RETENTION.eventBytes, MIN_BYTES, MAX_BYTES),
    requestBytes: sizeField(DEFAULT_RETENTION.requestBytes, MIN_BYTES, MAX_BYTES),
    historyBytes: sizeField(DEFAULT_HISTORY_BYTES, MIN_BYTES, MAX_BYTES),
    allowedOrigins: { fallback: [], parse: parseOrigins },
    weights: { fallback: undefined, parse: parseWeights },
  };
  const config = parseConfig(fields, layers);
  if (config.leaseMs < 3 * config.pingMs) {
    const message = `a lease of ${config.leaseMs} ms is less than three times the ping interval of ${config.pingMs} ms: one lost packet would lose a node`;
    throw new InvalidInputError([{ field: '--lease', message }]);
  }
  if (config.hungAfterMs !== undefined && config.hungAfterMs < config.leaseMs) {
    const message = `${config.hungAfterMs} ms is shorter than the lease of ${config.leaseMs} ms: a slow agent would be lost before its lease ends`;
    throw new InvalidInputError([{ field: '--hung-after', message }]);
  }
  checkEtcdSettings(config);
  if (config.tls === 'off') {
    requireLoopback(config.host);
    requireLoopback(config.opsHost);
    if (config.newAdminCredential) {
      const message = 'a coordinator without TLS has no users; start with --tls on';
      throw new InvalidInputError([{ field: '--new-admin-credential', message }]);
    }
  }
  return config;
}

/**
 * Parses `https://console.example,http://10.0.0.5:3000`: origins as browsers send them, which is
 * scheme, host and a port that is not the default one.
 */
function parseOrigins(
  raw: unknown,
): { readonly value: readonly string[] } | { readonly problem: string } {
  const list: readonly unknown[] = Array.isArray(raw)
    ? raw
    : typeof raw === 'string'
      ? raw.split(',').map((origin) => origin.trim())
      : [raw];
  const invalid = list.find((origin) => typeof origin !== 'string' || !isOrigin(origin));
  if (invalid === undefined) return { value: list as readonly string[] };
  return {
    problem: `"${String(invalid)}" is not a web origin; use scheme, host and port as browsers send them, such as https://console.example or http://10.0.0.5:3000, without a path`,
  };
}

/** Parses `10.96.0.0/16`: an IPv4 range. */
function parseServiceCidr(raw: unknown): { readonly value: string } | { readonly problem: string } {
  try {
    return { value: parseAddressRange(String(raw)).text };
  } catch (reason) {
    if (!(reason instanceof InvalidInputError)) throw reason;
    return { problem: reason.violations.map(({ message }) => message).join('; ') };
  }
}

/** Parses `coordinator.example,10.0.0.5`: DNS names and IP addresses. */
function parseServerNames(
  raw: unknown,
): { readonly value: readonly string[] } | { readonly problem: string } {
  const list: readonly unknown[] = Array.isArray(raw)
    ? raw
    : String(raw)
        .split(',')
        .map((name) => name.trim());
  const invalid = list.find((name) => typeof name !== 'string' || !isServerName(name));
  if (invalid === undefined) return { value: list as readonly string[] };
  return {
    problem: `"${String(invalid)}" is neither a DNS name nor an IP address; use a form such as coordinator.example or 10.0.0.5, without a port`,
  };
}

function isOrigin(text: string): boolean {
  return /^https?:/.test(text) && URL.canParse(text) && new URL(text).origin === text;
}

const WEIGHT_NAMES = ['locality', 'reliability', 'cost', 'utilisation', 'network penalty'] as const;

/** Parses `1,0,0,0.5,0`: the weights in the order of {@link WEIGHT_NAMES}. */
function parseWeights(
  raw: unknown,
): { readonly value: ScoreWeights } | { readonly problem: string } {
  const parts = typeof raw === 'string' ? raw.split(',').map(Number) : [];
  if (
    parts.length !== WEIGHT_NAMES.length ||
    parts.some((part) => !Number.isFinite(part) || part < 0) ||
    parts.every((part) => part === 0)
  ) {
    return {
      problem: `"${String(raw)}" must be five numbers from 0, not all 0, separated by commas: ${WEIGHT_NAMES.join(',')}`,
    };
  }
  const [locality = 0, reliability = 0, cost = 0, utilisation = 0, networkPenalty = 0] = parts;
  return { value: { locality, reliability, cost, utilisation, networkPenalty } };
}
