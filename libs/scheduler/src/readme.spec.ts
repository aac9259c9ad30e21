import { readFileSync } from 'node:fs';
import { toNodeId, toReplicaId, toWorkloadId } from '@cloudless/base';
import {
  createCluster,
  describeReasons,
  describeSuggestion,
  type PlacementRequest,
} from './index.js';

/** The code between the two marks is the example of the README, word for word. */
function example(console: { readonly log: (line: string) => void }): void {
  // README begin
  const GIB = 1024 ** 3;
  const cluster = createCluster();
  for (const [id, zone] of Object.entries({ n1: 'a', n2: 'b', n3: 'c' })) {
    cluster.upsertNode({
      id: toNodeId(id),
      region: 'eu',
      zone,
      capacity: { cpuMillis: 2_000, memoryBytes: 4 * GIB },
    });
  }
  const web: PlacementRequest = {
    workloadId: toWorkloadId('web'),
    namespace: 'default',
    labels: { app: 'web' },
    resources: { cpuMillis: 800, memoryBytes: GIB },
  };

  // Five replicas over three zones: 2, 2 and 1. Nothing is reserved yet.
  const nodeIds = cluster
    .place(web, 5)
    .map((placement) => (placement.placed ? placement.nodeId : 'nowhere'));
  console.log(nodeIds.join(' ')); // n1 n2 n3 n1 n2

  // The caller commits, then reserves.
  nodeIds.forEach((nodeId, index) => {
    const replicaId = toReplicaId(`web-${index + 1}`);
    cluster.reserve({ ...web, replicaId, nodeId: toNodeId(nodeId) });
  });

  // A sixth replica does not fit in zones a and b. Why?
  const [refused] = cluster.place({ ...web, zones: ['a', 'b'] }, 1);
  if (refused?.placed === false) {
    console.log(describeReasons(refused.reasons)); // needs 800m CPU, more than is free: 2 of 3 nodes; in none of the zones a, b: 1 of 3 nodes
  }
  const suggestion = cluster.suggest({ ...web, zones: ['a', 'b'] });
  if (suggestion !== undefined) console.log(describeSuggestion(suggestion)); // would fit on n1 with at most 400m CPU
  for (const node of cluster.explain({ ...web, zones: ['a', 'b'] })) {
    const verdict = node.fits ? `score ${node.score.toFixed(2)}` : node.reasons[0]?.text;
    console.log(`${node.nodeId}: ${verdict}`);
    // n3: is in zone c, needs one of a, b
    // n1: needs 800m CPU, 400m free
    // n2: needs 800m CPU, 400m free
  }
  // README end
}

/** Returns the code between the marks of this file without its indentation. */
function codeHere(): string {
  const source = readFileSync(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const code = source.split('  // README begin\n')[1]?.split('  // README end\n')[0] ?? '';
  return code.replace(/^ {2}/gm, '');
}

describe('README of scheduler', () => {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const block = /```ts\n(?<code>.*?)```/s.exec(readme)?.groups?.['code'] ?? '';
  const body = block.replace(/^import [^;]*;\n/gm, '').trimStart();

  it('contains the code of this spec', () => {
    expect(body).not.toBe('');
    expect(body).toBe(codeHere());
  });

  it('shows the output that its code prints', () => {
    const printed: string[] = [];
    example({ log: (line) => void printed.push(line) });
    const trailing = [...body.matchAll(/console\.log\(.*\); \/\/ (?<said>.*)$/gm)].map(
      (match) => match.groups?.['said'],
    );
    const listed = [...body.matchAll(/^ {2}\/\/ (?<said>n\d: .*)$/gm)].map(
      (match) => match.groups?.['said'],
    );
    expect(printed).toEqual([...trailing, ...listed]);
    expect(printed).toHaveLength(6);
  });
});
