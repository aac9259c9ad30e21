import { UsageError, readFlags, readNumber } from '../flags.js';

/** Events in the order in which they happen without `--events`. */
export const eventNames = [
  'rolling-update',
  'weighted-canary',
  'blue-green',
  'drain-node',
  'kill-agents',
  'upgrade-proxies',
  'stop-coordinators',
  'kill-node',
  'unplug-node',
  'kill-server-proxy',
  'kill-client-proxy',
  'kill-client-agent-and-proxy',
] as const;

/** Name of an event. */
export type EventName = (typeof eventNames)[number];

/** Parsed flags of a run. */
export interface ServiceOptions {
  readonly events: readonly EventName[];
  /** True: runs dig, curl, h2load, iperf3, nc, dnsperf and psql as clients. */
  readonly runsClients: boolean;
  /** True: changes the password of PostgreSQL, a secret, while clients use it. */
  readonly changesPasswords: boolean;
  /** Nodes with replicas. */
  readonly nodes: number;
  /** Time for which there is no coordinator, milliseconds. */
  readonly outageMs: number;
  /** Requests per second of the client. */
  readonly rate: number;
  /** True: an answer that takes more than a second counts as missing. */
  readonly isTimed: boolean;
  /** Directory for the logs of all programs at the end. */
  readonly logs: string;
}

/** Help text of the program. */
export const SERVICE_USAGE = `Usage: npm run chaos:services -- [flags]

Runs a cluster in network namespaces, and a client that sends 200 requests a second to the virtual
address of a service, half over new and half over kept connections, while updates and faults happen.
Then runs other programs as clients of services, and changes the password of PostgreSQL under load.
Exits with 1 when an expectation was violated. Needs Linux, root, etcd and nft; for the password
psql and postgres; for the other clients also dig, curl, h2load, iperf3, nc and dnsperf.

  --events A,B,…       these events in this order; none: no events
                       (default: ${eventNames.join(', ')})
  --no-clients         do not run the other programs
  --no-passwords       do not change the password of PostgreSQL
  --nodes N            nodes with replicas, 3 to 8 (default 3)
  --rate N             requests per second, 10 to 2000 (default 200)
  --outage SECONDS     time for which stop-coordinators leaves none (default 60)
  --strict             an answer that takes more than 1 s counts as missing: for a machine that
                       does nothing else
  --logs DIRECTORY     for the logs of all programs (default /tmp/cloudless-services)
`;

/**
 * Parses the flags.
 * @throws {@link UsageError} for an unknown flag or event, or a number out of its range.
 */
export function parseServiceOptions(args: readonly string[]): ServiceOptions {
  const values = readFlags(args, {
    events: { type: 'string' },
    'no-clients': { type: 'boolean' },
    'no-passwords': { type: 'boolean' },
    nodes: { type: 'string' },
    rate: { type: 'string' },
    outage: { type: 'string' },
    strict: { type: 'boolean' },
    logs: { type: 'string' },
  });
  return {
    events: parseEvents(values.events),
    runsClients: values['no-clients'] !== true,
    changesPasswords: values['no-passwords'] !== true,
    nodes: Math.floor(readNumber('nodes', values.nodes, 3, [3, 8])),
    rate: readNumber('rate', values.rate, 200, [10, 2_000]),
    outageMs: readNumber('outage', values.outage, 60, [1, 3_600]) * 1_000,
    isTimed: values.strict === true,
    logs: values.logs ?? '/tmp/cloudless-services',
  };
}

function parseEvents(text: string | undefined): readonly EventName[] {
  if (text === undefined) return eventNames;
  if (text === 'none') return [];
  return text.split(',').map((name) => {
    const known = eventNames.find((each) => each === name);
    if (known === undefined)
      throw new UsageError(
        `--events: there is no event ${name}; there are ${eventNames.join(', ')}`,
      );
    return known;
  });
}
