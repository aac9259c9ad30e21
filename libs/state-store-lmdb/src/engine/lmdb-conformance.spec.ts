import {
  describeSnapshots,
  describeStateStore,
  type OpenStore,
  type RestoreStore,
} from '@cloudless/state-store/conformance';
import { openLmdbStateStore, restoreLmdbStateStore } from '../index.js';
import { removeTemporaryDirectories, createTemporaryDirectory } from '../testing/index.js';

afterAll(removeTemporaryDirectories);

const open: OpenStore = async (options) =>
  openLmdbStateStore({ directory: await createTemporaryDirectory(), ...options });
const restore: RestoreStore = async (chunks, { clock, historyLimit }) => {
  const directory = await createTemporaryDirectory();
  await restoreLmdbStateStore({ directory, chunks });
  return openLmdbStateStore({ directory, clock, historyLimit });
};

describeStateStore('LMDB', open);
describeSnapshots('LMDB', open, restore);
