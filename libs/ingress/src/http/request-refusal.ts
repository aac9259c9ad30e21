/** Why a request is not forwarded: the status of the answer, and the reason for the client. */
export interface Refusal {
  readonly status: number;
  readonly reason: string;
}
