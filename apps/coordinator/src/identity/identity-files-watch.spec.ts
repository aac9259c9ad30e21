import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { createMetrics, type Metrics } from '@cloudless/observability';
import { createMemoryStateStore } from '@cloudless/state-store';
import { IdentityFilesWatch } from './identity-files-watch.js';

const MINUTE_MS = 60_000;
const WARNING =
  'the key is missing. The coordinator works until its next start, which will be refused: restore /data/identity from its backup, or without a backup run "cloudlessctl admin rotate-ca --wait", which makes new keys, before this coordinator stops';

let clock: ManualClock;
let state: ClusterState;
let metrics: Metrics;
let watch: IdentityFilesWatch;
let problem: string | undefined;
let logged: string[];

beforeEach(async () => {
  clock = new ManualClock();
  const store = createMemoryStateStore({ clock });
  const random = createSeededRandom(1);
  state = await openClusterState({ store, clock, random, log: silentLog, holder: 'test' });
  metrics = createMetrics();
  problem = undefined;
  logged = [];
  const add = (message: string) => logged.push(message);
  watch = new IdentityFilesWatch({
    ...{ state, clock, metrics, directory: '/data/identity' },
    log: { ...silentLog, info: add, error: add },
    findProblem: () => Promise.resolve(problem),
  });
});
afterEach(async () => {
  watch.close();
  await state.close();
});

const listEvents = () =>
  state
    .view()
    .events()
    .map(({ reason, message }) => [reason, message]);
const readMetric = async () =>
  (await metrics.expose()).split('\n').find((line) => line.startsWith('cloudless_identity_files'));

describe('IdentityFilesWatch', () => {
  it('warns within a minute by log, event, metric and health, once, until the files are back', async () => {
    await clock.advance(MINUTE_MS);
    expect([watch.listWarnings(), await readMetric(), logged]).toEqual([
      [],
      'cloudless_identity_files_complete 1',
      [],
    ]);
    problem = 'the key is missing';
    await clock.advance(3 * MINUTE_MS);
    expect([watch.listWarnings(), await readMetric(), logged]).toEqual([
      [WARNING],
      'cloudless_identity_files_complete 0',
      ['identity files lost'],
    ]);
    expect(listEvents()).toEqual([['IdentityFilesLost', WARNING]]);
    problem = undefined;
    await clock.advance(MINUTE_MS);
    expect([watch.listWarnings(), await readMetric(), logged.at(-1)]).toEqual([
      [],
      'cloudless_identity_files_complete 1',
      'identity files complete again',
    ]);
  });
});
