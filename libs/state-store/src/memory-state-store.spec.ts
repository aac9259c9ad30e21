import { describeStateStore } from './conformance/index.js';
import { createMemoryStateStore } from './index.js';

describeStateStore('memory', async ({ clock, historyLimit }) => createMemoryStateStore({ clock, historyLimit }));
