import { HYBRID_6_18 } from './recorded/hybrid-6-18.js';
import { V1_5_4 } from './recorded/v1-5-4.js';
import { V2_5_10 } from './recorded/v2-5-10.js';
import { V2_5_15 } from './recorded/v2-5-15.js';
import { V2_5_4 } from './recorded/v2-5-4.js';
import { V2_6_1 } from './recorded/v2-6-1.js';
import { V2_6_8 } from './recorded/v2-6-8.js';
import type { RecordedGroup } from './recorded-group.js';

/** One container on several kernels and layouts. `recorded/README.md` names the sources. */
export const recordedGroups = {
  hybrid618: HYBRID_6_18,
  v1Kernel54: V1_5_4,
  v2Kernel54: V2_5_4,
  v2Kernel510: V2_5_10,
  v2Kernel515: V2_5_15,
  v2Kernel61: V2_6_1,
  v2Kernel68: V2_6_8,
} as const satisfies Readonly<Record<string, RecordedGroup>>;
