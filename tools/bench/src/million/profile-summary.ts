// Sums up a CPU profile of the coordinator: self time by library and by function, by the source map
// of the bundle.
import { readFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { findBundle } from '@cloudless/e2e';

interface ProfileNode {
  readonly id: number;
  readonly children?: readonly number[];
  readonly callFrame: {
    readonly functionName: string;
    readonly url: string;
    readonly lineNumber: number;
    readonly columnNumber: number;
  };
}

interface Profile {
  readonly nodes: readonly ProfileNode[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** Functions in the list of the most expensive ones. */
const FUNCTIONS = 45;

const [file = ''] = process.argv.slice(2);
const profile = JSON.parse(readFileSync(file, 'utf8')) as Profile;
const map = new SourceMap(
  JSON.parse(readFileSync(`${findBundle('coordinator')}.map`, 'utf8')) as ConstructorParameters<
    typeof SourceMap
  >[0],
);

/** Returns the source file of a function, below the checkout or its packages. */
function sourceOf({ url, lineNumber, columnNumber }: ProfileNode['callFrame']): string {
  if (!url.endsWith('coordinator/main.mjs')) return url.replace('node:', 'node ') || '(native)';
  const entry = map.findEntry(lineNumber, columnNumber);
  return 'originalSource' in entry ? entry.originalSource.replace(/^(\.\.\/)+/, '') : 'bundle';
}

/** Returns the library of a source file: `libs/scheduler`, `@bufbuild/protobuf`. */
function libraryOf(source: string): string {
  const ofPackage = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(source)?.[1];
  if (ofPackage !== undefined) return ofPackage;
  return (
    /^((?:libs|apps)\/[^/]+(?:\/src\/[^/.]+(?=\/))?)/.exec(source)?.[1] ??
    source.split('/')[0] ??
    source
  );
}

const selfUs = new Map<number, number>();
profile.samples.forEach((id, index) =>
  selfUs.set(id, (selfUs.get(id) ?? 0) + (profile.timeDeltas[index] ?? 0)),
);
const byLibrary = new Map<string, number>();
const byFunction = new Map<string, number>();
const add = (sums: Map<string, number>, key: string, us: number): void =>
  void sums.set(key, (sums.get(key) ?? 0) + us);
let busyUs = 0;
for (const { id, callFrame } of profile.nodes) {
  const us = selfUs.get(id) ?? 0;
  const { functionName } = callFrame;
  // `dispatch` is the profiler itself.
  if (us === 0 || functionName === '(idle)' || functionName === 'dispatch') continue;
  busyUs += us;
  const source = sourceOf(callFrame);
  const isOwnFrame = functionName.startsWith('(');
  add(byLibrary, isOwnFrame && callFrame.url === '' ? functionName : libraryOf(source), us);
  add(byFunction, `${functionName || '(anonymous)'} ${source}`, us);
}

/** Adds the time of each own function with all that it calls; a recursive function counts once. */
function addInclusive(sums: Map<string, number>): void {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const visit = (node: ProfileNode, open: ReadonlySet<string>): number => {
    const source = sourceOf(node.callFrame);
    const key = `${node.callFrame.functionName || '(anonymous)'} ${source}`;
    const isOwn = /^(libs|apps)\//.test(source);
    const inner = isOwn && !open.has(key) ? new Set([...open, key]) : open;
    let us = selfUs.get(node.id) ?? 0;
    for (const child of node.children ?? []) {
      const childNode = nodes.get(child);
      if (childNode !== undefined) us += visit(childNode, inner);
    }
    if (inner !== open) add(sums, key, us);
    return us;
  };
  const [root] = profile.nodes;
  if (root !== undefined) visit(root, new Set());
}

const print = (title: string, sums: ReadonlyMap<string, number>, count: number): void => {
  process.stdout.write(`\n${title}\n`);
  for (const [key, us] of [...sums].sort((a, b) => b[1] - a[1]).slice(0, count))
    process.stdout.write(`${((us / busyUs) * 100).toFixed(1).padStart(5)} % ${key}\n`);
};
process.stdout.write(`busy ${(busyUs / 1e6).toFixed(2)} s\n`);
print('by library', byLibrary, 30);
print('by function', byFunction, FUNCTIONS);
const inclusive = new Map<string, number>();
addInclusive(inclusive);
print('own functions with all that they call', inclusive, FUNCTIONS);
