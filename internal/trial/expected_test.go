package trial_test

// expected is the outcome of every cell of the matrix, thought through cell by
// cell: how the operation ends, how many objects the provider's table then
// holds, and how many requests were on the wire. In the first word, answer, look
// and late stand for confirmed by the answer, by a lookup, by a late answer.
//
// What the columns have in common: K1 and K2 repeat with their key or id, K3 its
// upsert, and look first where they can; K4 looks and never repeats; K5 can do
// neither, so that whatever may have happened is a question to a person. In every
// class a write that is proven not to have been carried out is sent again.
const expected = `
fault                                  | K1                             | K1 without lookup                | K2                            | K3                               | K4                            | K5
none                                   | answer 1/1                     | answer 1/1                       | answer 1/1                    | answer 1/1                       | answer 1/1                    | answer 1/1
request lost                           | answer 1/2                     | answer 1/2                       | answer 1/2                    | answer 1/2                       | review evidence_exhausted 0/1 | review no_evidence_possible 0/1
connection reset                       | answer 1/2                     | answer 1/2                       | answer 1/2                    | answer 1/2                       | review evidence_exhausted 0/1 | review no_evidence_possible 0/1
connection refused                     | answer 1/1                     | answer 1/1                       | answer 1/1                    | answer 1/1                       | answer 1/1                    | answer 1/1
TLS failure                            | answer 1/1                     | answer 1/1                       | answer 1/1                    | answer 1/1                       | answer 1/1                    | answer 1/1
half-open, request swallowed           | answer 1/2                     | answer 1/2                       | answer 1/2                    | answer 1/2                       | review evidence_exhausted 0/1 | review no_evidence_possible 0/1
half-open, answer swallowed            | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
slow answer                            | look 1/1                       | late 1/1                         | look 1/1                      | look 1/1                         | look 1/1                      | late 1/1
slow provider                          | answer 1/6                     | answer 1/6                       | look 1/2                      | answer 1/2                       | look 1/1                      | review no_evidence_possible 1/1
applied late, inside late_apply        | answer 1/2                     | answer 1/2                       | answer 1/2                    | answer 1/2                       | look 1/1                      | review no_evidence_possible 1/1
applied late, beyond late_apply        | answer 1/2                     | answer 1/2                       | answer 1/2                    | answer 1/2                       | look 1/1                      | review no_evidence_possible 1/1
applied a day late                     | answer 2/2                     | answer 2/2                       | answer 1/2                    | answer 1/2                       | review evidence_exhausted 1/1 | review no_evidence_possible 1/1
delivered twice                        | answer 1/1                     | answer 1/1                       | answer 1/1                    | answer 1/1                       | answer + duplicate 2/1        | answer 2/1
delivered twice, answer lost           | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look + duplicate 2/1          | review no_evidence_possible 2/1
delivered again after the look         | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look 2/1                      | review no_evidence_possible 2/1
answer lost                            | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
answer cut after the headers           | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
answer cut in the body                 | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
answer is no JSON                      | look 1/1                       | review no_evidence_possible 1/1  | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
500, not done                          | answer 1/2                     | answer 1/2                       | answer 1/2                    | answer 1/2                       | review evidence_exhausted 0/1 | review no_evidence_possible 0/1
500, done                              | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
500, stored under the key              | look 1/1                       | review no_evidence_possible 1/2  | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
502 page of a gateway, done            | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
429                                    | answer 1/2                     | answer 1/2                       | answer 1/2                    | answer 1/2                       | answer 1/2                    | answer 1/2
answer lost, then 429                  | answer 1/3                     | answer 1/3                       | look 1/3                      | answer 1/3                       | look 1/1                      | review no_evidence_possible 1/1
503 before anything is done            | answer 1/2                     | answer 1/2                       | answer 1/2                    | answer 1/2                       | answer 1/2                    | answer 1/2
422                                    | refused 0/1                    | refused 0/1                      | refused 0/1                   | refused 0/1                      | refused 0/1                   | refused 0/1
answer lost, then 422                  | look 1/2                       | review refused_while_unknown 1/2 | look 1/2                      | look 1/2                         | look 1/1                      | review no_evidence_possible 1/1
answer lost, then 422, reads lie       | look 1/2                       | review refused_while_unknown 1/2 | absent 1/2                    | review refused_while_unknown 1/2 | look 1/1                      | review no_evidence_possible 1/1
error in the body of a 200             | review evidence_exhausted 0/1  | review no_evidence_possible 0/1  | review evidence_exhausted 0/1 | review evidence_exhausted 0/1    | review evidence_exhausted 0/1 | review no_evidence_possible 0/1
key forgotten at once                  | look 1/1                       | answer 2/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
every answer lost                      | review attempts_exhausted 1/6  | review attempts_exhausted 1/6    | review attempts_exhausted 1/6 | review attempts_exhausted 1/6    | review evidence_exhausted 1/1 | review no_evidence_possible 1/1
key expired                            | review key_retention_over 1/24 | review key_retention_over 1/24   | review ambiguous_match 1/49   | answer 1/49                      | review evidence_exhausted 1/1 | review no_evidence_possible 1/1
mismatch                               | review key_mismatch 1/2        | review key_mismatch 1/2          | look 1/2                      | look 1/2                         | look 1/1                      | review no_evidence_possible 1/1
id guarded loosely                     | answer 1/17                    | answer 1/17                      | answer 2/2                    | answer 2/2                       | look 1/1                      | review no_evidence_possible 1/1
credential of another account          | review account_mismatch 1/1    | review account_mismatch 1/1      | review account_mismatch 1/1   | review account_mismatch 1/1      | review account_mismatch 1/1   | review no_evidence_possible 1/1
credential revoked                     | answer 1/2                     | answer 1/2                       | answer 1/2                    | answer 1/2                       | answer 1/2                    | answer 1/2
index behind, inside the lag           | answer 1/2                     | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
index behind, beyond the lag           | answer 1/2                     | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
never indexed                          | answer 1/2                     | answer 1/2                       | look 1/1                      | look 1/1                         | review evidence_exhausted 1/1 | review no_evidence_possible 1/1
index flickers                         | answer 1/2                     | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
search down for an hour                | answer 1/2                     | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
title edited by a person               | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
label removed by a person              | answer 1/2                     | answer 1/2                       | look 1/1                      | answer 1/2                       | review evidence_exhausted 1/1 | review no_evidence_possible 1/1
deleted by a person                    | answer 1/2                     | answer 1/2                       | review ambiguous_match 1/2    | answer 2/2                       | review evidence_exhausted 1/1 | review no_evidence_possible 1/1
provider's clock is wrong              | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
crash before the start is stored       | answer 1/1                     | answer 1/1                       | answer 1/1                    | answer 1/1                       | answer 1/1                    | answer 1/1
crash before the start is acknowledged | answer 1/1                     | answer 1/1                       | answer 1/1                    | answer 1/1                       | review evidence_exhausted 0/0 | review no_evidence_possible 0/0
crash after the send                   | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
crash after the outcome                | answer 1/1                     | answer 1/1                       | answer 1/1                    | answer 1/1                       | answer 1/1                    | answer 1/1
two crashes after the send             | look 1/1                       | answer 1/3                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
two executors                          | answer 1/1                     | answer 1/1                       | answer 1/1                    | answer 1/1                       | answer 1/1                    | answer 1/1
two executors on old news              | look 1/1                       | answer 1/2                       | look 1/1                      | look 1/1                         | look 1/1                      | review no_evidence_possible 1/1
`
