import {
  describeSnapshots,
  describeStateStore,
  type OpenStore,
  type RestoreStore,
} from '../conformance/index.js';
import { createEngineStore } from '../engine/engine-store.js';
import { createMemoryStateStore } from '../index.js';
import { importSnapshot } from '../snapshot/import-snapshot.js';
import { MemoryStorage } from './memory-storage.js';

const open: OpenStore = async (options) => createMemoryStateStore(options);
const restore: RestoreStore = async (chunks, { clock, historyLimit }) => {
  const storage = new MemoryStorage(historyLimit);
  await importSnapshot(storage, chunks);
  return createEngineStore({ storage, clock, historyLimit });
};

describeStateStore('memory', open);
describeSnapshots('memory', open, restore);
