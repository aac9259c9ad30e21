import {
  InvalidInputError,
  durationField,
  oneOfField,
  parseConfig,
  sizeField,
  textField,
  wholeNumberField,
  type ConfigFields,
  type ConfigLayer,
} from '@cloudless/base';
import { DEFAULT_RETENTION } from '@cloudless/controllers';
import { requireLoopback } from '@cloudless/identity';
import { otlpEndpointField } from '@cloudless/observability';
import type { ScoreWeights } from '@cloudless/scheduler';
import { DEFAULT_HISTORY_BYTES } from '@cloudless/state-store';

/** Settings of a coordinator, complete. */
export interface CoordinatorConfig {
  /** Address of the API; loopback only while there is no TLS. */
  readonly host: string;
  /** Port of the API; 0 lets the system choose. */
  readonly port: number;
  /** Port of /health, /ready and /metrics; 0 lets the system choose. */
  readonly opsPort: number;
  /** `lmdb` keeps its data below `dataDir`; `memory` forgets everything at exit. */
  readonly state: 'lmdb' | 'memory';
  readonly dataDir: string;
  /** How long a node is trusted after it was last heard. */
  readonly leaseMs: number;
  /** How often agents are asked to send a PING; at most a third of the lease. */
  readonly pingMs: number;
  readonly logLevel: 'error' | 'warn' | 'info' | 'debug';
  readonly logFormat: 'json' | 'pretty';
  /** Base address of an OTLP receiver of traces; undefined: nothing is traced. */
  readonly otlpEndpoint: string | undefined;
  /** How long audit records are kept. */
  readonly auditRetentionMs: number;
  /** How long other events are kept. */
  readonly eventRetentionMs: number;
  /** Bytes that audit records take at most. */
  readonly auditBytes: number;
  /** Bytes that other events take at most. */
  readonly eventBytes: number;
  /** Bytes that results of requests with a request id take at most. */
  readonly requestBytes: number;
  /** Bytes of the data file that the history of changes takes at most. */
  readonly historyBytes: number;
  /** Weights of the score, as `locality,reliability,cost,utilisation,penalty`. */
  readonly weights: ScoreWeights | undefined;
}

const DAY_MS = 86_400_000;
/** Room for a few hundred records. */
const MIN_BYTES = 64 * 1024;
/** Audit records, events and results of requests are also in memory. */
const MAX_BYTES = 1024 ** 3;

/** The default place of the data, when neither flag nor file names one. */
export function defaultDataDir(env: Readonly<Record<string, string | undefined>>): string {
  const base =
    env['XDG_STATE_HOME'] ??
    (env['HOME'] === undefined ? undefined : `${env['HOME']}/.local/state`);
  return `${base ?? '.cloudless'}/cloudless/coordinator`;
}

/**
 * Reads the settings once. Layers later in the list win.
 * @throws InvalidInputError naming every unknown key, unreadable value and broken relation.
 */
export function parseCoordinatorConfig(
  layers: readonly ConfigLayer[],
  dataDir: string,
): CoordinatorConfig {
  const fields: ConfigFields<CoordinatorConfig> = {
    host: textField('127.0.0.1'),
    port: wholeNumberField(8080, 0, 65_535),
    opsPort: wholeNumberField(8081, 0, 65_535),
    state: oneOfField('lmdb', ['lmdb', 'memory']),
    dataDir: textField(dataDir, { pattern: /./, expected: 'a path' }),
    leaseMs: durationField(3_000, 300, 600_000),
    pingMs: durationField(900, 50, 200_000),
    logLevel: oneOfField('info', ['error', 'warn', 'info', 'debug']),
    logFormat: oneOfField('json', ['json', 'pretty']),
    otlpEndpoint: otlpEndpointField,
    auditRetentionMs: durationField(DEFAULT_RETENTION.auditMs, 1_000, 3_650 * DAY_MS),
    eventRetentionMs: durationField(DEFAULT_RETENTION.eventMs, 1_000, 3_650 * DAY_MS),
    auditBytes: sizeField(DEFAULT_RETENTION.auditBytes, MIN_BYTES, MAX_BYTES),
    eventBytes: sizeField(DEFAULT_RETENTION.eventBytes, MIN_BYTES, MAX_BYTES),
    requestBytes: sizeField(DEFAULT_RETENTION.requestBytes, MIN_BYTES, MAX_BYTES),
    historyBytes: sizeField(DEFAULT_HISTORY_BYTES, MIN_BYTES, MAX_BYTES),
    weights: { fallback: undefined, parse: parseWeights },
  };
  const config = parseConfig(fields, layers);
  if (config.leaseMs < 3 * config.pingMs) {
    const message = `a lease of ${config.leaseMs} ms is less than three times the ping interval of ${config.pingMs} ms: one lost packet would lose a node`;
    throw new InvalidInputError([{ field: '--lease', message }]);
  }
  requireLoopback(config.host);
  return config;
}

const WEIGHT_NAMES = ['locality', 'reliability', 'cost', 'utilisation', 'network penalty'] as const;

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
