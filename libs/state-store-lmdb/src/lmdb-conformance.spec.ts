import { describeStateStore } from '@cloudless/state-store/conformance';
import { openLmdbStateStore } from './index.js';
import { removeTemporaryDirectories, temporaryDirectory } from './testing/index.js';

afterAll(removeTemporaryDirectories);

describeStateStore('LMDB', async ({ clock, historyLimit }) =>
  openLmdbStateStore({ directory: await temporaryDirectory(), clock, historyLimit }),
);
