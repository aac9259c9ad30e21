/** Answer to a request that is not forwarded: its status, and the reason for the client. */
export interface Refusal {
  readonly status: number;
  readonly reason: string;
}
