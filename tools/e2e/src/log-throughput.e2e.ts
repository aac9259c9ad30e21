import {
  decodeLines,
  type CoordinatorClient,
  type LogEntry,
  type SkippedLines,
} from '@cloudless/api';
import { QUICK, RealCluster } from './support/cluster.js';

/** More lines than a node stores of one replica, so that a slow reader misses lines. */
const LINES = 200_000;
/** Writes a first line and, after a request, numbered lines of 100 bytes at full speed. */
const FLOOD = `const { writeSync } = require('node:fs');
  const rest = ' ' + 'x'.repeat(90) + '\\n';
  const flood = () => {
    for (let number = 2; number <= ${LINES};) {
      let lines = '';
      for (const end = Math.min(${LINES}, number + 499); number <= end; number += 1)
        lines += String(number).padStart(8, '0') + rest;
      for (let at = 0; at < lines.length;) at += writeSync(1, lines.slice(at));
    }
  };
  writeSync(1, '00000001\\n');
  require('node:http').createServer((_request, response) => { response.end(); flood(); })
    .listen(process.env.PORT, '127.0.0.1');`;
/** More followers than a node has tunnels. */
const FOLLOWERS = 40;

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start(['zone-a']);
});
afterAll(() => cluster.stop());

/** How a follower reads, and up to which line. */
interface Reading {
  readonly maxBatchBytes: number;
  readonly lastLine: number;
}

/** Follows the log of a container and checks each line number. */
async function followAndCheck(
  client: CoordinatorClient,
  containerId: string,
  reading: Reading,
  opened: () => void,
) {
  const { maxBatchBytes, lastLine } = reading;
  const stopping = new AbortController();
  const figures = { lines: 0, skipped: 0, faults: [] as string[] };
  let next = 1n;
  const onLine = ({ sequence, line }: LogEntry): void => {
    if (sequence !== next) figures.faults.push(`line ${sequence} came where ${next} was due`);
    if (Number(line.slice(0, 8)) !== Number(sequence))
      figures.faults.push(`line ${sequence} says ${line}`);
    next = sequence + 1n;
    figures.lines += 1;
  };
  const onSkipped = ({ firstSequence, lastSequence }: SkippedLines): void => {
    if (firstSequence !== next)
      figures.faults.push(`line ${firstSequence} is missing where ${next} was due`);
    next = lastSequence + 1n;
    figures.skipped += Number(lastSequence - firstSequence + 1n);
  };
  try {
    const request = { containerId, follow: true, maxBatchBytes };
    for await (const entry of client.streamLogs(request, { signal: stopping.signal })) {
      if (next === 1n) opened();
      if (entry.skipped !== undefined) onSkipped(entry.skipped);
      for (const line of decodeLines(entry)) if (line.sequence > 0n) onLine(line);
      if (next > BigInt(lastLine)) break;
    }
  } finally {
    stopping.abort();
  }
  return figures;
}

describe('log of a replica that writes at full speed', () => {
  it('has no repeated lines for a follower, and reports every missing line', async () => {
    const { client } = cluster;
    await client.createWorkload({
      name: 'flood',
      spec: {
        ...QUICK,
        command: ['node', '-e', FLOOD],
        ports: [{ name: 'http', containerPort: 80 }],
      },
    });
    const { status } = await cluster.waitUntilSettled('flood');
    const [replica] = status!.replicas;
    const [endpoint] = replica!.endpoints;
    let waiting = 2;
    const opened = (): void => {
      waiting -= 1;
      // Both followers have received the first line.
      if (waiting === 0) void fetch(`http://${endpoint!.ip}:${endpoint!.port}/`);
    };
    const readings: readonly Reading[] = [
      { maxBatchBytes: 64 * 1024, lastLine: LINES },
      { maxBatchBytes: 0, lastLine: LINES / 10 }, // one line a message
    ];
    const found = await Promise.all(
      readings.map((reading) => followAndCheck(client, replica!.containerId, reading, opened)),
    );
    for (const [index, { lines, skipped, faults }] of found.entries()) {
      expect(faults.slice(0, 3)).toEqual([]);
      expect(lines + skipped).toBeGreaterThanOrEqual(readings[index]!.lastLine);
    }
    expect(found[0]!.lines + found[0]!.skipped).toBe(LINES);
  });
});

describe('100 log followers of one client', () => {
  it('leave capacity for commands of the same client and of other clients', async () => {
    const { client } = cluster;
    await client.createWorkload({
      name: 'quiet',
      spec: { ...QUICK, command: ['/bin/sh', '-c', 'echo up; exec sleep 1000'] },
    });
    const { status } = await cluster.waitUntilSettled('quiet');
    const { containerId } = status!.replicas[0]!;
    const stopping = new AbortController();
    const followers = Array.from({ length: FOLLOWERS }, () =>
      client
        .streamLogs({ containerId, follow: true }, { signal: stopping.signal })
        [Symbol.asyncIterator](),
    );
    try {
      const first = await Promise.all(followers.map((follower) => follower.next()));
      expect(first.map(({ value }) => (value as LogEntry).line)).toEqual(followers.map(() => 'up'));
      const request = { containerId, command: ['echo', 'done'] };
      expect((await client.execCommand(request)).stdout).toBe('done\n');
      expect((await cluster.client.execCommand(request)).stdout).toBe('done\n');
    } finally {
      stopping.abort();
    }
  });
});
