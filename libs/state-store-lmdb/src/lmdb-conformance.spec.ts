import {
  describeSnapshots,
  describeStateStore,
  type OpenStore,
  type RestoreStore,
} from '@cloudless/state-store/conformance';
import { openLmdbStateStore, restoreLmdbStateStore } from './index.js';
import { removeTemporaryDirectories, temporaryDirectory } from './testing/index.js';

afterAll(removeTemporaryDirectories);

const open: OpenStore = async (options) =>
  openLmdbStateStore({ directory: await temporaryDirectory(), ...options });
const restore: RestoreStore = async (chunks, { clock, historyLimit }) => {
  const directory = await temporaryDirectory();
  await restoreLmdbStateStore({ directory, chunks });
  return openLmdbStateStore({ directory, clock, historyLimit });
};

describeStateStore('LMDB', open);
describeSnapshots('LMDB', open, restore);
