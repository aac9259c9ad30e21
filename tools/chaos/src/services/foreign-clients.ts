import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { requireItem } from '../require-item.js';
import type { ServiceCluster } from './service-cluster.js';
import { prepareForeignWorkloads } from './foreign-workloads.js';
import { POSTGRES } from './postgres.js';
import { findSessionFault, formatSession } from './session-answers.js';

/** Programs that the run needs. */
export const FOREIGN_PROGRAMS = [
  ...['dig', 'curl', 'h2load', 'iperf3', 'nc', 'dnsperf'],
  ...['psql', POSTGRES.server, POSTGRES.initdb, 'setpriv'],
];

/** DNS server of each node: the tenth address of the range. */
const DNS = '10.96.0.10';
const DOMAIN = 'default.svc.cloudless.internal';
const H2_REQUESTS = 5_000;

/** Output of a client, and the reason why it is wrong; undefined: as expected. */
interface Finding {
  readonly shown: string;
  readonly fault?: string | undefined;
}

/** Cluster and addresses that the checks use. */
interface ForeignContext {
  readonly cluster: ServiceCluster;
  /** Virtual addresses by service. */
  readonly addresses: ReadonlyMap<string, string>;
  /** Runs a command on the client's node, and returns its output; throws when it fails. */
  run(command: string): Promise<string>;
}

const expectText = (shown: string, wanted: string | RegExp): Finding => {
  const fits = typeof wanted === 'string' ? shown === wanted : wanted.test(shown);
  return fits ? { shown } : { shown, fault: `expected ${String(wanted)}` };
};

async function digNames({ addresses, run }: ForeignContext): Promise<Finding> {
  const address = requireItem(addresses.get('site'));
  const dig = (question: string): Promise<string> => run(`dig @${DNS} +short ${question}`);
  const answers = [
    await dig(`site.${DOMAIN} A`),
    await dig(`+tcp site.${DOMAIN} A`),
    await dig(`-x ${address}`),
    await dig(`_main._tcp.site.${DOMAIN} SRV`),
    /status: (\w+)/.exec(await run(`dig @${DNS} missing.${DOMAIN} A`))?.[1] ?? '',
  ].join(' ');
  const name = `site.${DOMAIN}.`;
  const wanted = `${address} ${address} ${name} 0 0 80 ${name} NXDOMAIN`;
  const [shown, target] = [answers, wanted].map((text) => text.replace(/ \d+ \d+ 80 /, ' 80 '));
  return expectText(shown ?? '', target ?? '');
}

/** Uses the node's DNS server as the resolver of the system, as containers do. */
async function curlByName({ cluster, run }: ForeignContext): Promise<Finding> {
  const file = join(cluster.world.directory, 'resolv.conf');
  writeFileSync(file, `search ${DOMAIN}\nnameserver ${DNS}\n`);
  const command = `mount --bind ${file} /etc/resolv.conf && curl -fsS --max-time 5 http://site/`;
  const answer = await run(`unshare --mount sh -c '${command} http://site.${DOMAIN}/'`);
  return expectText(answer, /^(\{"version":"1","replica":"[^"]+"\}){2}$/);
}

async function loadHttp2({ addresses, run }: ForeignContext): Promise<Finding> {
  const url = `http://${addresses.get('h2')}:8080/`;
  const text = await run(`h2load -n ${H2_REQUESTS} -c 20 -m 10 ${url}`);
  const rate = /finished in .*?, ([\d.]+) req\/s/.exec(text)?.[1] ?? '?';
  const counts = /^status codes: .*$/m.exec(text)?.[0] ?? '';
  return {
    shown: `${rate} requests/s, ${counts}`,
    fault: counts.startsWith(`status codes: ${H2_REQUESTS} 2xx, 0 3xx, 0 4xx, 0 5xx`)
      ? undefined
      : text,
  };
}

async function measureThroughput({ addresses, run }: ForeignContext): Promise<Finding> {
  const measure = async (flags: string): Promise<number> => {
    const text = await run(`iperf3 -c ${addresses.get('iperf')} -t 3 -J ${flags}`);
    const { end } = JSON.parse(text) as {
      readonly end: { readonly sum_received: { readonly bits_per_second: number } };
    };
    return end.sum_received.bits_per_second / 1e6;
  };
  const rates = [await measure(''), await measure('-R'), await measure('-P 4')];
  const [up = 0, down = 0, four = 0] = rates.map(Math.round);
  return {
    shown: `${up} Mbit/s, reverse ${down} Mbit/s, four connections ${four} Mbit/s`,
    fault: Math.min(up, down, four) > 0 ? undefined : 'no bytes arrived',
  };
}

async function sendDatagrams({ addresses, run }: ForeignContext): Promise<Finding> {
  const answers = await run(
    `for n in 1 2 3; do echo datagram $n | nc -u -w 1 ${addresses.get('echo')} 7000; done`,
  );
  return expectText(
    answers.replaceAll('\n', ', '),
    'echo datagram 1, echo datagram 2, echo datagram 3',
  );
}

async function loadDns({ cluster, addresses, run }: ForeignContext): Promise<Finding> {
  const file = join(cluster.world.directory, 'questions');
  const names = [...addresses.keys()].map((name) => `${name}.${DOMAIN} A`);
  writeFileSync(file, `${[...names, `missing.${DOMAIN} A`].join('\n')}\n`);
  const text = await run(`dnsperf -s ${DNS} -d ${file} -l 3 -c 4`);
  const read = (pattern: RegExp): string => pattern.exec(text)?.[1] ?? '?';
  const lost = read(/Queries lost:\s+(\d+)/);
  const codes = read(/Response codes:\s+(.*)/);
  return {
    shown: `${read(/Queries per second:\s+(\d+)/)} answers/s, lost ${lost}, ${codes}`,
    fault:
      lost === '0' && /^NOERROR \d+ \(8\d\.\d+%\), NXDOMAIN \d+ \(1\d\.\d+%\)$/.test(codes)
        ? undefined
        : text,
  };
}

/** Keeps a session with a query every 100 ms while another workload and another node change. */
async function keepSession({ cluster, addresses }: ForeignContext): Promise<Finding> {
  const stop = join(cluster.world.directory, 'stop-psql');
  const command = formatSession(requireItem(addresses.get('postgres')), 'postgres', stop);
  const session = cluster.client.machine.start(command);
  await session.waitForLine((line) => line.startsWith('5 '));
  await cluster.update('site', { env: { VERSION: '2' } });
  await cluster.waitUntilSettled('site');
  const other = requireItem(cluster.servers[1]).name;
  await cluster.ctl('node', 'drain', other, '--wait', '--accept-warnings');
  await cluster.ctl('node', 'uncordon', other);
  writeFileSync(stop, '');
  const code = await session.exited;
  const fault = findSessionFault(session.lines);
  return {
    shown: `${session.lines.length} queries of one session, exit code ${code}`,
    fault: code === 0 ? fault : `exit code ${code}: ${session.lines.slice(-3).join(' | ')}`,
  };
}

const CLIENTS: Readonly<Record<string, (context: ForeignContext) => Promise<Finding>>> = {
  dig: digNames,
  curl: curlByName,
  h2load: loadHttp2,
  iperf3: measureThroughput,
  'nc -u': sendDatagrams,
  dnsperf: loadDns,
  psql: keepSession,
};

/**
 * Starts workloads, and runs other programs as clients of their services.
 * @returns Violations, as texts. Empty: all checks held.
 */
export async function runForeignClients(
  cluster: ServiceCluster,
  print: (line: string) => void,
): Promise<readonly string[]> {
  const addresses = new Map<string, string>();
  for (const { name } of cluster.servers) await cluster.ctl('node', 'label', name, `node=${name}`);
  for (const [name, { spec, port, protocol }] of Object.entries(prepareForeignWorkloads(cluster))) {
    await cluster.create(name, spec);
    addresses.set(name, await cluster.waitForAddress(name, port, protocol));
  }
  const run = async (command: string): Promise<string> => {
    const { code, stdout, stderr } = await cluster.client.machine.run(command);
    if (code !== 0) throw new Error(`${command}: exit code ${code}: ${stderr}${stdout}`);
    return stdout.trim();
  };
  const violations: string[] = [];
  for (const [name, check] of Object.entries(CLIENTS)) {
    const { shown, fault } = await check({ cluster, addresses, run }).catch(
      (reason: unknown): Finding => ({ shown: '', fault: String(reason) }),
    );
    print(`${fault === undefined ? 'ok  ' : 'FAIL'} ${name}: ${shown}`);
    if (fault === undefined) continue;
    print(`     VIOLATION: ${fault}`);
    violations.push(`${name}: ${fault}`);
  }
  return violations;
}
