import type { NodeId } from '@cloudless/base';
import type { PlacementReason } from '../filters/reasons.js';
import type { ScoreTerms } from '../scoring/score.js';

/** Decision for one replica: the chosen node, or the reasons why no node fits. */
export type Placement =
  | {
      readonly placed: true;
      readonly nodeId: NodeId;
      readonly score: number;
      readonly terms: ScoreTerms;
    }
  | { readonly placed: false; readonly reasons: readonly PlacementReason[] };
